#!/usr/bin/env python3
"""Writes the pages of docs/ that are made of sources, so that nothing in them is said twice.

    generate.py           writes them
    generate.py --check   exit status 1, and a line for each, if one isn't what it would write

  reasons.md    proto/muster/v1/states.proto: each code's comment
  settings.md   what the service reads (yaml/engine_options.cc, extender/config.cc) with the defaults of
                its headers; the sentence and the bounds of each from the chart's values.schema.json
"""
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHO = ("user", "administrator", "nobody")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def fail(words):
    sys.exit(f"docs/generate.py: {words}")


# ---- reasons.md ----

def reasons(proto):
    """(heading, [(code, meaning, [(who, what to do)])]) of each part of enum ReasonCode."""
    body = proto[proto.index("enum ReasonCode {"):]
    parts, comment = [], []
    for line in map(str.strip, body.splitlines()):
        if line.startswith("//"):
            comment.append(line[2:].strip())
        elif not line:
            if comment:
                parts.append((" ".join(comment), []))
            comment = []
        elif found := re.match(r"([A-Z_]+) = \d+;$", line):
            code = found[1]
            if code == "REASON_UNSPECIFIED":
                continue
            meaning, does = "", []
            for words in comment:
                who = re.match(rf"({'|'.join(WHO)}): (.+)", words)
                if who:
                    does.append((who[1], who[2]))
                elif does:
                    fail(f"{code}: a sentence after what is to do: {words}")
                else:
                    meaning += (" " if meaning else "") + words
            if not meaning or not does or not parts:
                fail(f"{code} has no meaning, nobody who can mend it, or no heading")
            parts[-1][1].append((code, meaning, does))
            comment = []
    return parts


def reasons_page(proto):
    lines = [
        "# Reasons, and what to do",
        "",
        "Every gang says why it is where it is: a code, a sentence with the numbers, and what to do. "
        "`kubectl get gangs` shows the code, `kubectl get gang NAME -o yaml` all of it. The gang's own sentence "
        "knows names and numbers; this page is for what stands behind it. PodGroups and events have the same "
        "codes in Kubernetes' spelling: MEMBERS_MISSING is `MembersMissing` there.",
        "",
        "It goes on **by itself** where nobody stands below. The **user** owns the job; the **administrator** owns "
        "the cluster, its NodePools and queues, and Muster. Settings are those of [settings](settings.md).",
        "",
        "Made by `docs/generate.py` of [states.proto](../proto/muster/v1/states.proto); to change it, change that, then `./run fmt`.",
    ]
    for heading, codes in reasons(proto):
        if not codes:
            continue
        lines += ["", f"## {heading}", "", "| Reason | It means | What to do |", "|---|---|---|"]
        for code, meaning, does in codes:
            named = {"nobody": "By itself"}
            what = "<br>".join(f"**{named.get(who, who.capitalize())}**: {words}" for who, words in does)
            lines.append(f"| {code} | {meaning} | {what} |")
    return "\n".join(lines) + "\n"


# ---- settings.md ----

def shown(value):
    """A default as a configuration would say it."""
    if found := re.fullmatch(r"absl::(Hours|Minutes|Seconds|Milliseconds)\((.+)\)", value):
        number = eval(found[2], {"__builtins__": {}}) if re.fullmatch(r"[\d *]+", found[2]) else fail(value)
        return f"{number}{ {'Hours': 'h', 'Minutes': 'm', 'Seconds': 's', 'Milliseconds': 'ms'}[found[1]] }"
    if found := re.fullmatch(r"QuotaMode::k(\w+)", value):
        return found[1].lower()
    return value.replace("'", "")


def defaults(header):
    """The members of a header's structs that have one."""
    return {name: shown(value) for name, value in
            re.findall(r"^ +[\w:<>]+ (\w+) = ([^;]+);", header, re.MULTILINE)}


def what_is_read(source, function):
    """{key: member} of one reader; a member is '' where it isn't read as it is."""
    begin = source.index(f"void {function}(")
    body = source[begin:source.index("\n}\n", begin)]
    keys = {key: "" for key in re.findall(r'(?:Take|Read\w*(?:<\w+>)?)\(\s*"(\w+)"', body)}
    keys.update({key: member for key, member in re.findall(r'"(\w+)",\s*&options->(\w+)', body)})
    return keys


# Read by more than one line: where the default stands.
ELSEWHERE = {
    "quota": "quota",
    "maxInFlight": "max_in_flight",
    "stopGrace": "stop_grace",
}
NONE = ["addedAffinity", "scoringStrategy", "managedJobsNamespaceSelector", "resources", "reservedIdleGPUSeconds", "instanceTypes"]
OF_THE_CHART = {  # settings of the file that the chart makes of other values
    "engine", "extender", "webhook", "query", "lease",
}


def settings():
    """(name, default, bounds, sentence) of each of the chart's config.SETTING."""
    schema = json.loads(read("deploy/chart/values.schema.json"))
    config = schema["properties"]["config"]["properties"]
    options = read("yaml/engine_options.cc")
    service = read("extender/config.cc")
    known = defaults(read("coscheduling/engine_options.h")) | defaults(read("extender/config.h"))

    engine = what_is_read(options, "ReadEngineOptions")
    engine.pop("bindWait")  # refused, and names the setting that it is half of
    top = what_is_read(options, "ReadQuotaOptions") | what_is_read(service, "ReadAll") | what_is_read(service, "ReadMaxInFlight")
    for read_keys, described, where in ((engine, config["engine"]["properties"], "config.engine"),
                                        ({k: v for k, v in top.items() if k not in OF_THE_CHART},
                                         {k: v for k, v in config.items() if k != "engine"}, "config")):
        for key in sorted(set(read_keys) ^ set(described)):
            fail(f"{where}.{key} is only in " + ("the program" if key in read_keys else "values.schema.json"))
        for key in described:
            member = read_keys[key] or ELSEWHERE.get(key)
            if key in NONE:
                default = "none"
            elif key == "kueueLease":
                found = re.search(r"struct KueueLease \{\s+std::string name_space = \"(.+)\";\s+std::string name = \"(.+)\";",
                                  read("extender/config.h"))
                default = "/".join(found.groups())
            elif member in known:
                default = known[member]
            else:
                fail(f"{where}.{key}: no default of {member or 'it'} in the headers")
            sentence = described[key].get("description")
            if not sentence:
                fail(f"{where}.{key} has no description in values.schema.json")
            yield f"{where}.{key}", default, bounds(described[key], schema), sentence


def bounds(of, schema):
    if "$ref" in of:
        return "a duration, or `inf`" if of["$ref"].endswith("/duration") else "a mapping"
    if "enum" in of:
        return ", ".join(of["enum"])
    if of.get("type") == "integer":
        return f"{of['minimum']:,} to {of['maximum']:,}" if "maximum" in of else f"{of['minimum']:,} or more"
    return {"boolean": "true, false", "object": "a mapping", "string": "text"}[of["type"]]


def settings_page():
    lines = [
        "# Settings",
        "",
        "What Muster's configuration file says, under the chart's names: `helm upgrade ... --set config.engine.nodeGrace=1m`, or "
        "`engine: {nodeGrace: 1m}` in ConfigMap `muster` without Helm. What isn't set has the default. Nothing else is "
        "accepted: an unknown setting, or one out of its bounds, is named with its line, and Muster doesn't start. When to "
        "change which: [operating](operate.md#tuning). Replicas, resources, image, ports and policies are values of the chart, with "
        "their reasons in [values.yaml](../deploy/chart/values.yaml); flags are those of `muster serve --help`.",
        "",
        "Made by `docs/generate.py` of the program's sources and `values.schema.json`; to change it, change these, then `./run fmt`.",
        "",
        "| Setting | Default | May be | What it does |",
        "|---|---|---|---|",
    ]
    for name, default, may_be, sentence in settings():
        lines.append(f"| `{name}` | {default} | {may_be} | {sentence} |")
    return "\n".join(lines) + "\n"


def main():
    pages = {"docs/reasons.md": reasons_page(read("proto/muster/v1/states.proto")), "docs/settings.md": settings_page()}
    stale = 0
    for path, text in pages.items():
        if os.path.exists(os.path.join(ROOT, path)) and read(path) == text:
            continue
        if sys.argv[1:] == ["--check"]:
            print(f"{path} isn't what docs/generate.py makes of the sources: ./run fmt")
            stale = 1
        else:
            with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
                file.write(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
