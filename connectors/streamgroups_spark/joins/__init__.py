"""``sg.join``: joins of two topics in the stage that reads (SEMANTICS W18)."""
