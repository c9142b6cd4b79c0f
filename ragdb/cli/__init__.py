"""The command line: each verb is a call of the library and the printing of what it returns.

Only Typer is imported to show a help text; what a verb needs is imported inside it.
"""
