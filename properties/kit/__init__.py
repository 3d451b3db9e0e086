"""The instruments of the properties: real processes, ledgers, failpoints, raw storage and the checkers that judge them.

Nothing here is used by the product. An assertion raised here is a property's own.
"""
