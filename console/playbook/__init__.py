"""A playbook that ./motley runs: started, shown while it runs, and what went wrong in it in words."""
