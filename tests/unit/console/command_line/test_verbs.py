"""What can be typed: words without a name, each launch variable as an option, and the examples of the help."""

import shlex

import pytest

from console.command_line.verbs import VERBS, launch_variables, parser


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("ask 'when does it close?' --run notes", "question", "when does it close?"),
        ("ask when does it close", "question", "when does it close"),
        ("ask --question why", "question", "why"),
        ("export merged", "to", "merged"),
        ("export --run notes adapter", "to", "adapter"),
        ("export", "to", "gguf"),
        ("logs a b", "limit", "a b"),
        ("logs -f", "no_follow", False),
        ("logs --no-follow", "no_follow", True),
        ("pause a --for 2h", "limit", "a"),
        ("fetch notes", "run", "notes"),
        ("undo --all", "phase", "all"),
        ("undo", "phase", ""),
        ("launch --learning-rate 1e-4 --save_every=5", "settings", ["learning_rate=1e-4", "save_every=5"]),
        ("launch --queue --pack false --detach", "settings", ["queue=true", "pack=false", "follow=false"]),
        ("plan --load-in 4bit --set lora_r=8", "settings", ["load_in=4bit", "lora_r=8"]),
        ("plan", "settings", []),
    ],
)
def test_what_people_type(words: str, name: str, value: object) -> None:
    verb, *options = shlex.split(words)
    assert vars(parser(verb).parse_args(options))[name] == value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((words, "") for words in ("export a", "export gguf merged", "fetch a b", "status a", "launch a")),
        ("logs --lines -1", "-1 is below 0"),
        ("dashboard --port 70000", "70000 is no number up to 65535"),
        ("chat --port -5", "-5 is below 0"),
        ("ask why --tokens 0", "0 is below 1"),
        ("queue --move a --to 0", "0 is below 1"),
        ("check-rewards exact --rows -3", "-3 is below 1"),
        ("rent --hours nan", "nan is no number up to"),
        ("logs --lines many", "invalid number value: 'many'"),
    ],
)
def test_what_means_nothing_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb, *options = words.split()
    with pytest.raises(SystemExit) as ended:
        parser(verb).parse_args(options)
    assert ended.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["plan", "launch"])
def test_every_launch_variable_is_an_option(verb: str) -> None:
    takes = parser(verb)
    for variable in launch_variables():
        args = vars(takes.parse_args([f"--{variable.replace('_', '-')}", "1"]))
        settings = args.pop("settings")
        assert settings == [f"{variable}=1"] or args[variable] == "1", variable


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_its_help_can_be_typed(verb: str) -> None:
    parser(verb).parse_args(shlex.split(VERBS[verb].example))


def test_the_help_says_values_and_defaults() -> None:
    shown = parser("export").format_help() + parser("launch").format_help()
    shown = " ".join(shown.split())
    assert "gguf, merged, adapter, hub:USER/NAME; default: gguf" in shown
    assert "default: inventory/homelab" in shown and "suspend, poweroff" in shown
    assert "--hidden-size" not in shown and "docs/reference.md#launch-variables" in shown
