"""What the tasks of a doctor's run registered becomes what console/doctor judges."""

from plugins.action import doctor_judge


def test_the_seconds_of_a_first_contact_are_the_whole_tasks() -> None:
    contact = {"state": "known", "address": "192.168.1.5", "tried": ["192.168.1.5"]}
    found = {"contacts": {"one": contact}, "waited_s": 3.2}
    values = {"motley_address": "192.168.1.5", "motley_manage_host": True, "motley_doctor_contact": found}
    node = doctor_judge.node_of("one", {"one": values})
    assert node.contact == contact and node.took["contact"] == 3.2
