"""What became of the graphs of one training."""

from __future__ import annotations

from .. import registry


class Watch:
    """Of the graphs compiled since it was made: a few lines for a log."""

    def __init__(self):
        self._known = {record.id for record in registry.records()}

    def summary(self) -> str:
        """One line of counts, and one for each reason why something runs by ATen."""
        records = [r for r in registry.records() if r.id not in self._known]
        native = [r for r in records if r.tier == "native"]
        lines = [f"tenon: {len(records)} graphs, {len(native)} native with {sum(r.kernels for r in native)} kernels"]
        lines += [f"  {r.kind} graph {r.id} runs by ATen: {r.reason}" for r in records if r.tier != "native"]
        steps: dict[tuple[str, str], int] = {}
        for record in native:
            for step in record.framework_steps():
                key = step["op"], step["reason"]
                steps[key] = steps.get(key, 0) + 1
        lines += [f"  {op} runs by ATen, {count} times a step: {why}" for (op, why), count in steps.items()]
        return "\n".join(lines)
