//! Fuzz targets: the output of agents, their metadata, and their input.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use pod_safety_clock::Mono;
use pod_safety_fuzz::{Draw, fuzz};
use pod_safety_transport::{Act, Driver, MAX_OUTPUT_BYTES, Machine, Order, Power, Secret, Value};

use super::metadata::Metadata;
use super::parameters::Kind;
use super::run_result::{CapturedOutput, RunResult};
use super::tests::METADATA;
use super::{input, verdict};
use crate::redact::Redactor;

const ACTS: &[Act] = &[Act::Look, Act::Off, Act::On];

const SPOKEN: &[&str] = &[
    "Status: OFF",
    "Status: ON",
    "Status: OFFLINE",
    "status: off",
    "\n",
    "\r\n",
    " ",
    "Success: Powered OFF",
    "Traceback",
    ": ",
    "Unable to connect",
    "401",
    "hunter2hunter2",
    "Status: ",
    "OFF",
    "ERROR",
];

fn captured(draw: &mut Draw<'_>) -> CapturedOutput {
    let text = draw.text(SPOKEN).into_bytes();
    let text = if draw.once_in(8) { draw.corrupt(&text) } else { text };
    CapturedOutput { text: text.into(), is_truncated: draw.once_in(8) }
}

/// "Off" needs a whole line and the exit code. Everything else is on, unknown or an error, in one short line without
/// secrets.
#[test]
fn an_agents_output_is_off_only_if_line_and_exit_code_agree() {
    fuzz!(4_000, |draw| {
        let (act, code) = (*draw.one_of(ACTS).unwrap(), *draw.one_of(&[2, 0, 1, -1, 3, 126]).unwrap());
        let killed = draw.once_in(8);
        let ended = RunResult {
            input_unread_until: Mono::default(),
            code: (!killed).then_some(code),
            signal: killed.then_some(9),
            stdout: captured(draw),
            stderr: captured(draw),
            killed_leftovers: draw.below(3),
        };
        let secret = Value::Secret(Secret::new("hunter2hunter2".to_owned()));
        let redactor = Redactor::new(&BTreeMap::from([("password".to_owned(), secret)]));
        let stdout = String::from_utf8_lossy(&ended.stdout.text).to_ascii_lowercase();
        let says = |words: &str| stdout.lines().any(|line| line.trim() == words);
        let answer = verdict::interpret(act, &ended, &redactor);
        let said = match &answer {
            Ok(answer) => answer.said.clone(),
            Err(error) => error.to_string(),
        };
        assert!(!said.contains("hunter2hunter2") && !said.chars().any(char::is_control), "{said:?}");
        let Ok(answer) = answer else { return };
        assert!(answer.said.len() <= MAX_OUTPUT_BYTES);
        match answer.power {
            Power::Off => {
                assert!(act == Act::Look && code == 2 && says("status: off") && !says("status: on"), "{stdout:?}")
            }
            Power::On => assert!(act == Act::Look && code == 0 && !says("status: off"), "{stdout:?}"),
            Power::Unknown => assert_ne!(act, Act::Look),
            Power::Gone => panic!("only a second question says so"),
        }
        assert!(!killed && !ended.stdout.is_truncated && !ended.stderr.is_truncated);
    });
}

const NAMES: &[&str] =
    &["ip", "ipaddr", "plug", "password", "ssl", "lanplus", "method", "power_timeout", "a&b", "<", "\"", "'"];

const TYPES: &[&str] = &["string", "boolean", "integer", "second", "select", "new"];

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        // Writing to a String cannot fail.
        let _ = write!(out, "&#{};", u32::from(letter));
    }
    out
}

/// Whether XML 1.0 allows this character.
fn is_of_xml(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Metadata is decoded as it was written: no more, no less.
#[test]
fn metadata_is_decoded_as_it_was_written() {
    fuzz!(1_500, |draw| {
        let mut expected = BTreeMap::new();
        let mut list = String::new();
        for _ in 0..draw.below(6) {
            let text = |draw: &mut Draw<'_>| draw.text(NAMES).chars().filter(|one| is_of_xml(*one)).collect::<String>();
            let (name, default, kind) = (text(draw), draw.once_in(2).then(|| text(draw)), draw.word(TYPES));
            let required = draw.once_in(2);
            let options: Vec<String> = (0..draw.below(3)).map(|_| text(draw)).collect();
            let choices: String = options.iter().map(|one| format!("<option value=\"{}\"/>", escaped(one))).collect();
            let shown = default.as_deref().map(|text| format!(" default=\"{}\"", escaped(text))).unwrap_or_default();
            let (escaped_name, number) = (escaped(&name), u8::from(required));
            let _ = write!(
                list,
                "<parameter name=\"{escaped_name}\" required=\"{number}\"><content type=\"{kind}\"{shown}>{choices}</content></parameter>",
            );
            let kind = match kind {
                "boolean" => Kind::Flag,
                "integer" | "second" => Kind::Number,
                "select" => Kind::Choice(options),
                _ => Kind::Text,
            };
            expected.insert(name, (kind, required, default));
        }
        let text = format!("<resource-agent><parameters>{list}</parameters></resource-agent>");
        let read = Metadata::read(&text).unwrap();
        let read: BTreeMap<_, _> =
            read.parameters.into_iter().map(|(name, one)| (name, (one.kind, one.required, one.default))).collect();
        assert_eq!(read, expected, "{text}");
    });
}

/// Malformed metadata is decoded or refused; entities are never expanded, and an agent that cannot read power is not
/// used.
#[test]
fn malformed_metadata_is_decoded_or_refused() {
    const ENTITY: &str = "<!DOCTYPE a [<!ENTITY x \"xxxxxxxxxxxxxxxx\">]>";
    fuzz!(1_500, |draw| {
        let mut text = String::from_utf8_lossy(&draw.corrupt(METADATA.as_bytes())).into_owned();
        if draw.once_in(4) {
            text = text.replacen("?>", &format!("?>{ENTITY}"), 1);
        }
        let Ok(metadata) = Metadata::read(&text) else { return };
        assert!(!text.contains("<!DOCTYPE"), "{text}");
        if metadata.check_usable("fence_test").is_ok() {
            assert!(text.contains("\"status\"") && text.contains("\"off\"") && text.contains("\"reboot\""), "{text}");
        }
    });
}

const VALUES: &[&str] =
    &["true", "no", "1", "20", "onoff", "cycle", "{{.Node.Name}}", "action=reboot", "\n", "\"", "#", "192.0.2.1", "="];

/// The characters that Python's `str.strip` removes.
fn is_blank_to_python(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// The reader of fence-agents 4.12.1 (`fencing.py`, `process_input`), as a second implementation.
fn parse_input(stdin: &str) -> BTreeMap<&str, &str> {
    let mut parsed = BTreeMap::new();
    for line in stdin.split(['\n', '\r']) {
        let line = line.trim_matches(is_blank_to_python);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
        parsed.insert(name, if quoted { &value[1..value.len() - 1] } else { value });
    }
    parsed
}

/// An agent reads each parameter as it was given, and the action of the order.
#[test]
fn an_agent_reads_the_parameters_and_the_action_of_the_order() {
    fuzz!(4_000, |draw| {
        let metadata = Metadata::read(METADATA).unwrap();
        let names: Vec<&str> = metadata.parameters.keys().map(String::as_str).collect();
        let mut parameters = BTreeMap::from([("ip".to_owned(), Value::Plain("192.0.2.1".to_owned()))]);
        for _ in 0..draw.below(4) {
            let name = if draw.once_in(8) { draw.text(NAMES) } else { draw.word(&names).to_owned() };
            let text = draw.text(VALUES);
            let value = if draw.once_in(2) { Value::Secret(Secret::new(text)) } else { Value::Plain(text) };
            parameters.insert(name, value);
        }
        let act = *draw.one_of(ACTS).unwrap();
        let machine = Machine { node: "node-1".into(), ..Machine::default() };
        let within = Duration::from_secs(1);
        let order = Order { driver: Driver::Agent("fence_test".into()), parameters, machine, act, within };
        let Ok(lines) = input::order_input("fence_test", &metadata, &order) else { return };
        let stdin = std::str::from_utf8(&lines).unwrap();
        let mut input = parse_input(stdin);
        let action = match act {
            Act::Off => "off",
            Act::On => "on",
            Act::Look => "status",
        };
        assert_eq!((input.remove("action"), input.remove("nodename")), (Some(action), Some("node-1")), "{stdin:?}");
        for (name, value) in &order.parameters {
            let value = value.reveal();
            match (metadata.parameters[name].kind == Kind::Flag, input.remove(name.as_str())) {
                (true, Some(flag)) => {
                    assert!(flag == "1" || (flag, name.as_str()) == ("0", "lanplus"), "{stdin:?}")
                }
                (true, None) => {
                    assert!(["0", "no", "off", "false"].contains(&value.to_lowercase().as_str()), "{value}")
                }
                (false, parsed_value) => assert_eq!(parsed_value, Some(value), "{name}: {stdin:?}"),
            }
        }
        assert!(input.is_empty(), "read besides: {input:?}");
    });
}
