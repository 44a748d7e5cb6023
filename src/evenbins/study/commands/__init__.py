"""The commands that are for study: `evenbins reproduce`, `simulate`, `demo` and `lab`.

`evenbins.cli` has their names and imports each when it is called; what all commands share is
`evenbins._console`.
"""
