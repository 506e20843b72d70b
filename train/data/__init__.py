"""Turns a file of records into packed rows."""
