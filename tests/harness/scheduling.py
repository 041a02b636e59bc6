"""Which tests run in the same process: those of a file, those of the console, those of clusters.

`--dist loadgroup` did that by marks, until pytest 9.2 gave tests ids which xdist cannot mark.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# One browser is enough for a machine, so are three nodes, and a session of Spark takes ten seconds
# and half a gigabyte.
TOGETHER = {
    "tests/pipeline/": "spark",
    "tests/examples/test_pipeline_examples.py": "spark",
    "tests/console/": "console",
    "tests/cluster/test_by_hand.py": "cluster",
    "tests/cluster/test_faults.py": "cluster",
    "tests/cluster/test_operating.py": "cluster",
    "tests/cluster/test_partitions.py": "cluster",
    "tests/cluster/test_recovering.py": "cluster",
    "tests/cluster/test_shards": "cluster",
    "tests/cluster/test_three_nodes.py": "cluster",
}


class GroupScheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        for path, group in TOGETHER.items():
            if file.startswith(path):
                return group
        return file
