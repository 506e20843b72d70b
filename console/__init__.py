"""What a person at the controller talks to: the inventory's check, the live view of playbook runs, their receipts."""
