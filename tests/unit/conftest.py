"""What runs on a node finds its helpers where Ansible lays them: beside Ansible's own."""

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[2] / "plugins/module_utils"))
