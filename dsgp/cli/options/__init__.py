"""Types of the options: what each takes, its placeholder and its line of help.

A module for each command, and one of those that several have. Defaults stand with the commands in
`dsgp.cli.commands`. As there, nothing here imports what computes.
"""
