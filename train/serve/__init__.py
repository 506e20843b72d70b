"""Answers requests on a node with what a run has made.

command.py    python -m train serve: requests come and answers go as lines of JSON
request.py    a request, and how one token of its answer is drawn
batch.py      transformers in this process, several answers side by side
by_vllm.py    vLLM's server beside this process, where it is installed
written.py    the text of an answer while its tokens come
memory.py     how much is answered side by side in the memory that is free
"""
