"""How good are the evictions on a real model? `kvtriage-eval` runs policies side by side and says.

Read in this order: `plan` (what a run consists of), `runner` (one run), `measures` (what is measured),
`report` (the table, the plots and the reading). Needs the extra `kvtriage[eval]`.
"""
