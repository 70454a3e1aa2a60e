#!/usr/bin/env python3
"""Writes service/observe/catalogue.h and METRICS.md from metrics.json, the one source of metric names.

make_catalogue.py          rewrites both files
make_catalogue.py --check  changes nothing; exit status 1 when one of them is stale
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent.parent / "service" / "observe" / "catalogue.h"
TABLES = HERE / "METRICS.md"
GROUPS = {"decisions": "Decisions", "quality": "Quality", "blend": "Blending", "memory": "Memory", "service": "Service",
          "process": "Process"}


def full_name(catalogue, metric):
    return metric["name"] if metric.get("bare") else catalogue["prefix"] + metric["name"]


def label_name(catalogue, label):
    return catalogue["labels"][label].get("as", label)


def series_ceiling(catalogue, metric):
    """Largest number of series that one service exposes for this metric."""
    combinations = 1
    for label in metric["labels"]:
        values = catalogue["labels"][label]
        combinations *= values.get("max", len(values["values"]))
    if metric["type"] == "histogram":
        return combinations * (len(catalogue["buckets"][metric["buckets"]]) + 3)
    return combinations * (2 if metric["type"] == "summary" else 1)


def constant(name):
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def array_lines(cpp_type, name, values):
    lines = [f"inline constexpr std::array<{cpp_type}, {len(values)}> {name} = {{"]
    line = "   "
    for value in values:
        if len(line) + len(value) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return lines + [line, "};"]


def header_text(catalogue):
    metrics = catalogue["metrics"]
    lines = [
        "// Metric names, help texts, label values and bucket bounds.",
        "// Made by deploy/prometheus/make_catalogue.py from metrics.json: change that file and run the script.",
        "// clang-format off",
        "#ifndef KVTRIAGE_SERVICE_OBSERVE_CATALOGUE_H_", "#define KVTRIAGE_SERVICE_OBSERVE_CATALOGUE_H_", "",
        "#include <array>", "#include <cstdint>", "",
        "namespace kvtriage::catalogue {", "",
        "enum class Type : uint8_t { kCounter, kGauge, kHistogram, kSummary };", "",
        "struct Metric {", "  Type type;", "  const char* name;", "  const char* help;",
        "  uint32_t max_series;  // as lines of the page", "};", "",
        f"inline constexpr uint32_t kSeriesLimit = {catalogue['series_limit']};", "",
    ]
    for name, values in catalogue["labels"].items():
        if "max" not in values:  # the others are known at start or later
            lines += array_lines("const char*", constant(name) + "Values", [quoted(v) for v in values["values"]])
    lines.append("")
    for name, bounds in catalogue["buckets"].items():
        lines += array_lines("double", constant(name) + "Buckets", [repr(b) for b in bounds])
    lines.append("")
    for metric in metrics:
        kind = "Type::k" + metric["type"].capitalize()
        lines.append(f"inline constexpr Metric {constant(metric['name'])} = {{{kind}, {quoted(full_name(catalogue, metric))},")
        lines.append(f"    {quoted(metric['help'])}, {series_ceiling(catalogue, metric)}}};")
    lines.append("")
    lines += array_lines("const Metric*", "kAll", ["&" + constant(m["name"]) for m in metrics])
    lines += ["", "}  // namespace kvtriage::catalogue", "", "#endif  // KVTRIAGE_SERVICE_OBSERVE_CATALOGUE_H_", ""]
    return "\n".join(lines)


def labels_cell(catalogue, metric):
    labels = [label_name(catalogue, label) for label in metric["labels"]] + metric.get("info", [])
    return ", ".join(f"`{label}`" for label in labels) or "-"


def tables_text(catalogue):
    total = sum(series_ceiling(catalogue, m) for m in catalogue["metrics"])
    lines = [
        "# Metrics", "",
        "Made by `make_catalogue.py` from `metrics.json`; change that file and run the script.", "",
        "`kvtriaged` serves this page as `/metrics` on `listen.metrics`. Names are an interface: dashboards and rules rest on",
        "them. Every series exists from the start at 0; only those with a `layer` label appear with the first registration.",
        f"One service shows at most {total} series.",
        "", "A decision is one sequence in one Compress or CompressLayers call, or one that an Observe has cut back, all its",
        "layers together. Numbers per head are in the answers (`Measure`), never here. Quality numbers say how faithful the kept set is to the full cache; they do not promise how",
        "well a task is solved.",
    ]
    for group, title in GROUPS.items():
        lines += ["", f"## {title}", "", "| name | type | unit | labels | buckets | meaning |", "| --- | --- | --- | --- | --- | --- |"]
        for metric in catalogue["metrics"]:
            if metric["group"] == group:
                lines.append(f"| `{full_name(catalogue, metric)}` | {metric['type']} | {metric['unit']} | "
                             f"{labels_cell(catalogue, metric)} | {metric.get('buckets', '-')} | {metric['help']} |")
    lines += ["", "## Label values", "", "| label | values | meaning |", "| --- | --- | --- |"]
    for name, values in catalogue["labels"].items():
        shown = ", ".join(values["values"])
        if "max" in values:
            shown = f"at most {values['max']}, for example {shown}"
        lines.append(f"| `{values.get('as', name)}` | {shown} | {values['meaning']} |")
    lines += ["", "## Bucket bounds", ""]
    lines += [f"* **{name}**: {' '.join(repr(b) for b in bounds)}" for name, bounds in catalogue["buckets"].items()]
    return "\n".join(lines) + "\n"


def main():
    catalogue = json.loads((HERE / "metrics.json").read_text())
    total = sum(series_ceiling(catalogue, m) for m in catalogue["metrics"])
    if total >= catalogue["series_limit"]:
        sys.exit(f"metrics.json: {total} series, the limit is {catalogue['series_limit']}")
    stale = []
    for path, text in ((HEADER, header_text(catalogue)), (TABLES, tables_text(catalogue))):
        if path.exists() and path.read_text() == text:
            continue
        if "--check" in sys.argv[1:]:
            stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"stale: {', '.join(stale)}; run deploy/prometheus/make_catalogue.py")


if __name__ == "__main__":
    main()
