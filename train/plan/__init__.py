"""What will run where, and whether it can. Pure, and without torch.

settings    what a person may set          model      what a model is, and its memory
machines    what a launch finds of them    placement  where the weights are: first_way_that_fits.py
speed       their rows and seconds         estimate   what a run will take
launch      what is decided of all that: decide.py is the page to read
"""
