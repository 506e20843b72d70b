"""A run as an endpoint like OpenAI's on this machine (./motley serve), and a conversation over it (./motley chat).

command.py         the verb: finds the machines, opens the port
app.py             the paths of the endpoint
openai_form.py     what a request may say, and what it gets back, in OpenAI's form
guard.py           who may ask
router.py          hands requests to machines, and what a lost one had begun to another
machine.py         one machine: a process there that answers, its connection, its speed
choose_machine.py  the pure part: how fast a machine would write one more answer, and which is chosen
chat.py            the conversation in a terminal
"""
