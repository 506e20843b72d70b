"""Our lookup fills a template in as Ansible's own does, byte for byte, and copies nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import yaml

from tests.support import ROOT, pace

TEMPLATE = """\
{# a comment #}
[Unit]
{% for name in names %}
  Wants={{ name | upper }}
{% endfor %}
\\n {{ number }}
{% if "b" in names %}yes{% endif %}


"""
NUMBER = "{{ 40 + 2 }}"


def test_it_is_what_ansibles_own_lookup_gives(tmp_path: Path) -> None:
    files = [tmp_path / "unit.j2", tmp_path / "number.j2"]
    for file, text in zip(files, (TEMPLATE, "{{ number }}"), strict=True):
        file.write_text(text)
    lookups = [f"lookup('{name}', '{file}')" for file in files for name in ("motley_template", "template")]
    program = Path(sys.executable).with_name("ansible")
    variables = {"names": ["a", "{{ 'b' }}"], "number": NUMBER, "ansible_python_interpreter": sys.executable}
    words = f"msg={{{{ [{', '.join(lookups)}] | to_json }}}}"
    command = [program, "localhost", "-c", "local", "-m", "debug", "-a", words, "-e", json.dumps(variables)]
    env = os.environ | {"ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg", "ANSIBLE_INVENTORY": f"{ROOT}/inventory/loopback"}
    done = pace.does(*command, env=env, cwd=ROOT)
    said = yaml.safe_load(done.stdout.partition("=>")[2])["msg"]
    ours, theirs, our_number, their_number = json.loads(said)
    assert "Wants=B" in ours and "42" in ours
    assert (ours, our_number) == (theirs, their_number)
