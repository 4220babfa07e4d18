"""What runs on the hosts: sent over ssh as text, with the standard library only.

A host that is looked at may have an old Python: nothing newer than 3.8 is used here. Each function takes the
request, a JSON object, and returns the answer, another one.
"""
