"""Where tasks run: executors, one file each; child processes, with a private pipe each and arrays in memory that both map.

`child.Child` is what the parent holds, `pipe.Pipe` what the child's function gets. Nothing is shared by two children: no lock, no queue, no
manager. Modules of child processes are imported by those who start them, so `import penstock` pays nothing for them.
"""
