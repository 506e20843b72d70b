"""A run as objects of Kubernetes: what is asked for (settings.py), the objects (objects.py), and what an API server
would say of them (check.py), before anything is sent to one."""
