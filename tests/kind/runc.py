"""runc.py RUNC ARGUMENTS…: runc, without the capability that this machine may not give to anybody (CAP_SYS_RESOURCE).

Without it nobody may lower a score of the out-of-memory killer either. Both stand in what Docker writes for runc: in
the bundle's config.json for a container, in a file of its own for a process that joins one."""

import json
import os
import sys

CANNOT_BE_GIVEN = "CAP_SYS_RESOURCE"


def value_of(arguments, *flags):
    for at, argument in enumerate(arguments):
        if argument in flags:
            return arguments[at + 1]
        for flag in flags:
            if argument.startswith(flag + "="):
                return argument[len(flag) + 1 :]
    return None


def weaken(process):
    for names in (process.get("capabilities") or {}).values():
        if CANNOT_BE_GIVEN in names:
            names.remove(CANNOT_BE_GIVEN)
    if (process.get("oomScoreAdj") or 0) < 0:
        process["oomScoreAdj"] = 0


def rewrite(path, process_of):
    with open(path) as file:
        config = json.load(file)
    weaken(process_of(config))
    with open(path, "w") as file:
        json.dump(config, file)


runc, arguments = sys.argv[1], sys.argv[2:]
if "create" in arguments or "run" in arguments:
    bundle = value_of(arguments, "--bundle", "-b") or os.getcwd()
    rewrite(os.path.join(bundle, "config.json"), lambda config: config["process"])
elif "exec" in arguments:
    process = value_of(arguments, "--process", "-p")
    if process:
        rewrite(process, lambda config: config)
os.execv(runc, ["runc", *arguments])
