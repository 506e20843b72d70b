"""How numbers look to a person at the controller."""

from console.words import counted, wh_or_kwh


def test_one_thing_and_several_and_little_energy() -> None:
    assert [counted(number, "probe") for number in (0, 1, 2)] == ["0 probes", "1 probe", "2 probes"]
    assert [wh_or_kwh(kwh) for kwh in (0.000899, 0.0421, 0.1, 12.345)] == ["0.9 Wh", "42 Wh", "0.1 kWh", "12.3 kWh"]
