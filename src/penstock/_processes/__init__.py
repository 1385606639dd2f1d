"""Child processes: start, one private pipe each, death with the parent, and arrays in memory that both map.

`child.Child` is what the parent holds, `pipe.Pipe` what the child's function gets. Nothing here is shared by two children: no lock, no
queue, no manager. Modules of this room are imported by those who start processes, so `import penstock` pays nothing for them.
"""
