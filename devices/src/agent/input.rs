//! Parameters as the lines that an agent reads from stdin.
//!
//! The agents' reader trims lines, drops comments, removes one pair of quotes, prints what it does not know, and
//! treats a flag as set whenever it is present, even as `0`. So every value must pass it unchanged, or it is refused
//! before anything runs.

use std::collections::BTreeMap;

use pod_safety_transport::{Act, DeviceError, Order, Value};
use zeroize::Zeroizing;

use super::metadata::{Metadata, Parameter};
use super::parameters::{self, Class, Kind};
use super::traps;

/// The only flag that agents read by its value where it is on by default.
const FLAG_BY_VALUE: &str = "lanplus";

/// The begin of a placeholder. A value with one is rendered for each node, and is not known when a device is checked.
const TEMPLATE: &str = "{{";

/// Checks whether `agent` accepts these parameters. Secrets and templates are checked when their values are known.
pub(super) fn check(agent: &str, metadata: &Metadata, parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    for (name, value) in parameters {
        let parameter = find_parameter(agent, metadata, name)?;
        match value {
            Value::Plain(text) if !text.contains(TEMPLATE) => line(name, parameter, text).map(drop)?,
            Value::Plain(_) | Value::Secret(_) => {}
        }
    }
    check_required(agent, metadata, parameters)?;
    check_outlet(agent, metadata, parameters)
}

/// The input that is written to the agent's stdin for `order`.
pub(super) fn order_input(agent: &str, metadata: &Metadata, order: &Order) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
    check_required(agent, metadata, &order.parameters)?;
    check_outlet(agent, metadata, &order.parameters)?;
    let node = ("nodename", order.machine.node.as_ref());
    // The agents' own name for a status check, and last: of a duplicate line the last one counts.
    let action = ("action", action(order.act));
    input(agent, metadata, order.parameters.iter(), [node, action])
}

/// The input that makes the agent list what this filter selects. The filter is constant, and no parameter of the
/// order changes what is listed or how.
pub(super) fn list_input(
    agent: &str,
    metadata: &Metadata,
    order: &Order,
    filter: &str,
) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
    let kept = order.parameters.iter().filter(|(name, _)| !LISTS.contains(&name.as_str()));
    input(agent, metadata, kept, [("filter", filter), ("action", "list")])
}

/// These parameters, and then the lines that no parameter changes.
fn input<'a>(
    agent: &str,
    metadata: &Metadata,
    parameters: impl Iterator<Item = (&'a String, &'a Value)>,
    last: [(&str, &str); 2],
) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
    let mut text = Zeroizing::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = line(name, find_parameter(agent, metadata, name)?, value.reveal())? {
            push(&mut text, name, value);
        }
    }
    for (name, value) in last {
        check_plain(name, value)?;
        push(&mut text, name, value);
    }
    Ok(Zeroizing::new(text.as_bytes().to_vec()))
}

/// Parameters that change what an agent lists.
const LISTS: [&str; 3] = ["filter", "plug", "separator"];

/// A match over all acts, so that a new one must be added here. Never `reboot`, which is the agents' default.
const fn action(act: Act) -> &'static str {
    match act {
        Act::Off => "off",
        Act::On => "on",
        Act::Look => "status",
    }
}

fn push(text: &mut Zeroizing<String>, name: &str, value: &str) {
    // A new buffer: a String that grows leaves its old content in memory.
    let mut longer = Zeroizing::new(String::with_capacity(text.len() + name.len() + value.len() + 2));
    for part in [text.as_str(), name, "=", value, "\n"] {
        longer.push_str(part);
    }
    *text = longer;
}

fn find_parameter<'a>(agent: &str, metadata: &'a Metadata, name: &str) -> Result<&'a Parameter, DeviceError> {
    if let Some(why) = traps::parameter_problem(name) {
        return Err(refuse(name, why));
    }
    let Some(parameter) = metadata.parameters.get(name) else {
        return Err(refuse(name, unknown(metadata, name)));
    };
    if let Some(now) = &parameter.replaced_by {
        return Err(refuse(name, format!("this is an old spelling; write {now:?}")));
    }
    match parameters::class_of(name, &parameter.kind) {
        None => Err(refuse(name, parameters::NOT_REVIEWED)),
        Some(Class::File) if agent != traps::DUMMY_AGENT => Err(refuse(name, parameters::NOT_REVIEWED)),
        Some(_) => Ok(parameter),
    }
}

fn unknown(metadata: &Metadata, name: &str) -> String {
    let meant = name.trim_start_matches('-').replace('-', "_");
    if meant != name && metadata.parameters.contains_key(&meant) {
        return format!("write {meant:?}, as the agent's metadata does");
    }
    let names: Vec<_> = metadata.names().collect();
    format!("the agent has no such parameter; it has {}", names.join(", "))
}

/// Checks that all required parameters are given.
fn check_required(agent: &str, metadata: &Metadata, parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    if let Some((name, why)) = traps::required_parameter(agent).filter(|(name, _)| !parameters.contains_key(*name)) {
        return Err(refuse(name, why));
    }
    let missing = metadata.parameters.iter().find(|(name, parameter)| {
        let required = parameter.required && parameter.default.is_none() && parameter.replaced_by.is_none();
        required && traps::parameter_problem(name).is_none() && !parameters.contains_key(name.as_str())
    });
    missing.map_or(Ok(()), |(name, _)| Err(refuse(name, "the agent requires it, and it is missing")))
}

/// Checks that the agent cannot report an outlet off that is missing.
fn check_outlet(agent: &str, metadata: &Metadata, parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    let given = |name: &str| parameters.get(name).map(Value::reveal);
    let by_default = || metadata.parameters.get("snmp_version")?.default.as_deref();
    let snmp_version = given("snmp_version").or_else(by_default);
    let problem = given("plug").and_then(|plug| traps::outlet_problem(agent, plug, snmp_version));
    problem.map_or(Ok(()), |why| Err(refuse("plug", why)))
}

/// The value as it is written; `None`: the line is left out.
fn line<'a>(name: &str, parameter: &Parameter, value: &'a str) -> Result<Option<&'a str>, DeviceError> {
    check_plain(name, value)?;
    if let Some(why) = traps::value_problem(name, value) {
        return Err(refuse(name, why));
    }
    let class = parameters::class_of(name, &parameter.kind);
    if let Some(why) = class.and_then(|class| parameters::value_problem(class, value)) {
        return Err(refuse(name, why));
    }
    match &parameter.kind {
        Kind::Text => Ok(Some(value)),
        Kind::Number if value.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(value)),
        Kind::Number => Err(refuse(name, "write a whole number, without a unit")),
        Kind::Choice(options) if options.iter().any(|option| option == value) => Ok(Some(value)),
        Kind::Choice(options) => Err(refuse(name, format!("write one of {}", options.join(", ")))),
        Kind::Flag => flag(name, parameter, value),
    }
}

/// Agents check whether a flag is present: off is its absence.
fn flag(name: &str, parameter: &Parameter, value: &str) -> Result<Option<&'static str>, DeviceError> {
    if traps::is_truthy(value) {
        return Ok(Some("1"));
    }
    if !traps::is_falsy(value) {
        return Err(refuse(name, "write \"true\" or \"false\""));
    }
    let on_by_default = parameter.default.as_deref().is_some_and(traps::is_truthy);
    match (on_by_default, name == FLAG_BY_VALUE) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some("0")),
        (true, false) => Err(refuse(
            name,
            "the agent treats this flag as set whenever it is present, and sets it by default: it cannot be switched off",
        )),
    }
}

/// Checks that a value reaches the agent unchanged.
fn check_plain(name: &str, value: &str) -> Result<(), DeviceError> {
    let why = if value.is_empty() {
        "it is empty; leave the parameter out, or correct its Secret"
    } else if value.contains([
        '\n', '\r', '\0', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{1f}', '\u{85}', '\u{2028}', '\u{2029}',
    ]) {
        "it contains a line break or a NUL, which cannot be passed to an agent (was a Secret made from a file with a newline at its end?)"
    } else if value.trim() != value {
        "it begins or ends with a blank, which an agent ignores"
    } else if value.len() > 1 && value.starts_with('"') && value.ends_with('"') {
        "it is wrapped in quotes, which an agent removes"
    } else {
        return Ok(());
    };
    Err(refuse(name, why))
}

fn refuse(name: &str, why: impl Into<String>) -> DeviceError {
    DeviceError::Parameter { name: name.to_owned(), why: why.into() }
}
