"""A model is admitted by proof, not by name: a miniature of it is trained in a few seconds, and must be exact.

miniature   a small model like the one that is meant, with random weights
cut         computed in parts by several machines, it is the same
reasons     why a check fails, in a sentence
exact       all that a run relies on, one check after another; the verdict is train/plan/model/verdict.py
"""
