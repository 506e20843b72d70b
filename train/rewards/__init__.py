"""What an answer is worth: functions of the owner's and a few of ours, in a process of their own (docs/rewards.md).

judge        asks them, and says what went wrong with one
process      starts the process that they run in, asks it, and ends it at a time limit
child        what that process does
confine      what that process may do
built_in     exact, number, format, length, json

Standard library only. How they are named: train/plan/settings/rewards.py.
"""
