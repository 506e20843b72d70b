from hypothesis import settings

settings.register_profile("no times", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("no times")
