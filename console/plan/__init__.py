"""What a launch is going to do, decided from what was asked and what the nodes tell, before anything is changed. Pure.

Numbers about memory and traffic come from `python -m train plan`, whether versions agree from console/versions.py.
"""
