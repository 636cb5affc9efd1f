"""Does to a pod what Kubernetes would do by a MutatingAdmissionPolicy, and then checks it as Kubernetes would by a
ValidatingAdmissionPolicy: inject.py POLICIES POD, with the pod in YAML.

It prints the pod, or why it is refused, and then fails. The expressions are evaluated by cel-python, which knows neither `Object` nor `JSONPatch`. What
Kubernetes checks of these is checked here: that an object is in the field that its type names, and that lists and maps have values
of one type.
"""

import re
import sys

import celpy
import yaml
from celpy import celtypes

TYPE = re.compile(r"\b(?:JSONPatch|Object(?:\.\w+)*)(?=\{)")


def main(policies, pod):
    with open(policies) as file:
        specs = {each["kind"]: each["spec"] for each in yaml.safe_load_all(file)}
    with open(pod) as file:
        pod = yaml.safe_load(file)
    mutate(pod, specs["MutatingAdmissionPolicy"])
    validate(pod, specs["ValidatingAdmissionPolicy"])
    yaml.safe_dump(pod, sys.stdout, sort_keys=False)


def mutate(pod, spec):
    given = {"object": celpy.json_to_cel(pod)}
    if matches(spec, given):
        variables = {}
        for variable in spec["variables"]:
            variables[celtypes.StringType(variable["name"])] = evaluated(variable["expression"], given)
            given["variables"] = celtypes.MapType(variables)
        for mutation in spec["mutations"]:
            assert mutation["patchType"] == "JSONPatch", mutation
            for patch in evaluated(mutation["jsonPatch"]["expression"], given):
                add(pod, **plain(patch, "JSONPatch"))


def validate(pod, spec):
    given = {"object": celpy.json_to_cel(pod)}
    if matches(spec, given):
        for validation in spec["validations"]:
            if not evaluated(validation["expression"], given):
                sys.exit(validation["message"])


def matches(spec, given):
    return all(evaluated(each["expression"], given) for each in spec["matchConditions"])


def evaluated(expression, given):
    """Names of types go without dots, since one may be the beginning of another."""
    types = {name: type(str(name), (celtypes.MapType,), {}) for name in TYPE.findall(expression)}
    flat = TYPE.sub(lambda name: name[0].replace(".", "_"), expression)
    environment = celpy.Environment(annotations={name.replace(".", "_"): kind for name, kind in types.items()})
    return environment.program(environment.compile(flat)).evaluate(given)


def plain(value, path):
    """Returns the value without the types of CEL. `path` is the type that an object has here."""
    if isinstance(value, celtypes.MapType):
        is_object = type(value) is not celtypes.MapType
        assert not is_object or type(value).__name__ == path, f"{type(value).__name__} in {path}"
        assert is_object or has_one_type(value.values()), f"{path} is a map of several types: {value}"
        if path == "JSONPatch":
            # The type says for which field it is meant.
            inner = value[celtypes.StringType("value")]
            return {str(key): plain(each, type(inner).__name__ if key == "value" else "") for key, each in value.items()}
        return {str(key): plain(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, celtypes.ListType):
        assert has_one_type(value), f"{path} is a list of several types: {value}"
        return [plain(each, path) for each in value]
    if isinstance(value, str):
        return str(value)
    return bool(value) if isinstance(value, celtypes.BoolType) else int(value)


def has_one_type(values):
    return len({str if isinstance(each, str) else type(each) for each in values}) <= 1


def add(pod, op, path, value):
    """The `add` of RFC 6902."""
    assert op == "add", op
    *steps, last = path.removeprefix("/").split("/")
    place = pod
    for step in steps:
        place = place[step]
    if isinstance(place, list):
        place.insert(len(place) if last == "-" else int(last), value)
    else:
        place[last] = value


main(*sys.argv[1:])
