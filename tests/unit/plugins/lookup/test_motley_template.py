"""Our lookup fills a template in as Ansible's own does, byte for byte, and copies nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
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


def filled(lookup: str, file: Path) -> str:
    words = f"{{{{ lookup('{lookup}', '{file}') | to_json }}}}"
    program = Path(sys.executable).with_name("ansible")
    variables = {"names": ["a", "{{ 'b' }}"], "number": NUMBER, "ansible_python_interpreter": sys.executable}
    command = [program, "localhost", "-c", "local", "-m", "debug", "-a", f"msg={words}", "-e", json.dumps(variables)]
    env = os.environ | {"ANSIBLE_CONFIG": f"{ROOT}/ansible.cfg", "ANSIBLE_INVENTORY": f"{ROOT}/inventory/loopback"}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_what_ansibles_own_lookup_gives(tmp_path: Path) -> None:
    file = tmp_path / "unit.j2"
    file.write_text(TEMPLATE)
    ours = filled("motley_template", file)
    assert "Wants=B" in ours and "42" in ours
    assert ours == filled("ansible.builtin.template", file)
    file.write_text("{{ number }}")
    assert filled("motley_template", file) == filled("ansible.builtin.template", file)
