//! Evaluates a ValidatingAdmissionPolicy for one request, with the crate `kube-cel`.
//!
//! Its own evaluator of policies has no `authorizer`, no `variables` and no `request.options`, which nearly all of
//! our policies use. So only its functions are used, and those three are implemented here. It has no types: whether a
//! field exists in the API is not checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Map as CelMap;
use kube_cel::cel::{Context, Program, Value as Cel, to_value};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// The result of an evaluation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    NotAsked,
    Allowed,
    /// The message of the first validation that fails.
    Refused(String),
}

/// The expression that cannot be evaluated for a request, and why. `failurePolicy: Fail` makes it a refusal.
type Failed = String;

/// An admission request.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) user: String,
    groups: Vec<String>,
    pub(crate) operation: String,
    group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) object: Value,
    pub(crate) old: Value,
    pub(crate) options: Value,
    params: Value,
    /// `RESOURCE VERB` in the group of the break-glass verbs.
    pub(crate) rights: Vec<&'static str>,
}

impl Request {
    /// `act` is the operation and the resource: `UPDATE pods/status`, `CREATE apps/deployments`. The part before the
    /// first slash is a group if it has a dot or is one of three.
    pub(crate) fn new(user: &str, act: &str) -> Self {
        let (operation, kind) = act.split_once(' ').unwrap();
        let (group, rest) = match kind.split_once('/') {
            Some((group, rest)) if group.contains('.') || ["apps", "policy", "batch"].contains(&group) => (group, rest),
            _ => ("", kind),
        };
        let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        let text = str::to_owned;
        Self {
            user: text(user),
            groups: Vec::new(),
            operation: text(operation),
            group: text(group),
            resource: text(resource),
            subresource: text(subresource),
            object: Value::Null,
            old: Value::Null,
            options: Value::Null,
            params: Value::Null,
            rights: Vec::new(),
        }
    }
    pub(crate) fn object(mut self, object: impl Into<Value>) -> Self {
        self.object = object.into();
        self
    }
    pub(crate) fn old(mut self, old: impl Into<Value>) -> Self {
        self.old = old.into();
        self
    }
    pub(crate) fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }
    pub(crate) fn params(mut self, params: impl Into<Value>) -> Self {
        self.params = params.into();
        self
    }
    pub(crate) fn may(mut self, right: &'static str) -> Self {
        self.rights.push(right);
        self
    }

    /// `request` in expressions. Empty fields are absent, as in the API's own form.
    fn request(&self) -> Value {
        let of = |field: &str| {
            let named = if self.object.is_null() { &self.old } else { &self.object };
            named["metadata"][field].clone()
        };
        let mut request = json!({
            "operation": self.operation,
            "name": of("name"),
            "namespace": of("namespace"),
            "resource": { "group": self.group, "version": "v1", "resource": self.resource },
            "subResource": self.subresource,
            "userInfo": { "username": self.user, "groups": self.groups },
            "options": self.options,
        });
        let empty = |value: &Value| value.is_null() || value == "";
        for field in ["name", "namespace", "subResource"] {
            if empty(&request[field]) {
                request.as_object_mut().unwrap().remove(field);
            }
        }
        request
    }
}

/// Integers are signed in CEL, whatever their sign.
struct Signed<'a>(&'a Value);

impl Serialize for Signed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => match number.as_i64() {
                Some(whole) => serializer.serialize_i64(whole),
                None => number.serialize(serializer),
            },
            Value::Array(all) => serializer.collect_seq(all.iter().map(Signed)),
            Value::Object(all) => serializer.collect_map(all.iter().map(|(key, value)| (key, Signed(value)))),
            other => other.serialize(serializer),
        }
    }
}

fn cel(value: &Value) -> Cel {
    to_value(Signed(value)).unwrap()
}

/// An expression, and its results in the rows.
struct Expression {
    place: String,
    text: String,
    program: Program,
    was_true: AtomicBool,
    was_false: AtomicBool,
}

impl Expression {
    fn compile(place: String, text: &Value) -> Self {
        let text = text.as_str().unwrap().to_owned();
        let program = Program::compile(&text).unwrap_or_else(|error| panic!("{place}: {text}: {error}"));
        Self { place, text, program, was_true: AtomicBool::new(false), was_false: AtomicBool::new(false) }
    }

    /// The value of a condition or a validation.
    fn is_true(&self, context: &Context<'_>) -> Result<bool, Failed> {
        match self.program.execute(context) {
            Ok(Cel::Bool(is)) => {
                if is { &self.was_true } else { &self.was_false }.store(true, Ordering::Relaxed);
                Ok(is)
            }
            other => Err(format!("{}: {}: {other:?}", self.place, self.text)),
        }
    }

    /// The value of a message.
    fn says(&self, context: &Context<'_>) -> Result<String, Failed> {
        self.was_true.store(true, Ordering::Relaxed);
        match self.program.execute(context) {
            Ok(Cel::String(text)) => Ok(text.to_string()),
            other => Err(format!("{}: {}: {other:?}", self.place, self.text)),
        }
    }
}

struct Rule {
    groups: Vec<String>,
    operations: Vec<String>,
    resources: Vec<String>,
}

impl Rule {
    fn matches(&self, request: &Request) -> bool {
        let has = |all: &[String], one: &str| all.iter().any(|each| each == "*" || each == one);
        let named = match request.subresource.as_str() {
            "" => request.resource.clone(),
            sub => format!("{}/{sub}", request.resource),
        };
        has(&self.groups, &request.group)
            && has(&self.operations, &request.operation)
            && (self.resources.iter().any(|each| each == "*/*" || *each == named))
    }
}

/// A policy whose expressions all compile.
pub(crate) struct Policy {
    pub(crate) name: String,
    rules: Vec<Rule>,
    conditions: Vec<Expression>,
    variables: Vec<(String, Expression)>,
    validations: Vec<(Expression, Expression)>,
    notes: Vec<Expression>,
}

impl Policy {
    pub(crate) fn compile(policy: &Value) -> Self {
        let whole = policy["metadata"]["name"].as_str().unwrap();
        let name = whole.trim_start_matches("pod-safety-").trim_start_matches("keeper-").to_owned();
        let list = |field: &str| policy["spec"][field].as_array().cloned().unwrap_or_default();
        let made = |what: &str, at: usize, text: &Value| Expression::compile(format!("{name}, {what} {at}"), text);
        let all = |what: &str, from: &str, field: &str| -> Vec<Expression> {
            list(from).iter().enumerate().map(|(at, one)| made(what, at, &one[field])).collect()
        };
        let texts = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
        let rule = |rule: &Value| Rule {
            groups: texts(&rule["apiGroups"]),
            operations: texts(&rule["operations"]),
            resources: texts(&rule["resources"]),
        };
        let expressions = all("validation", "validations", "expression");
        let messages = all("message", "validations", "messageExpression");
        let variables =
            list("variables").iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        Self {
            rules: policy["spec"]["matchConstraints"]["resourceRules"].as_array().unwrap().iter().map(rule).collect(),
            conditions: all("condition", "matchConditions", "expression"),
            variables: variables.into_iter().zip(all("variable", "variables", "expression")).collect(),
            validations: expressions.into_iter().zip(messages).collect(),
            notes: all("audit annotation", "auditAnnotations", "valueExpression"),
            name,
        }
    }

    pub(crate) fn judge(&self, request: &Request) -> Result<Verdict, Failed> {
        if !self.rules.iter().any(|rule| rule.matches(request)) {
            return Ok(Verdict::NotAsked);
        }
        let mut context = context(request);
        // As in the API server, a false condition takes precedence over one that cannot be evaluated.
        let conditions: Vec<_> = self.conditions.iter().map(|condition| condition.is_true(&context)).collect();
        if conditions.iter().any(|met| matches!(met, Ok(false))) {
            return Ok(Verdict::NotAsked);
        }
        conditions.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.assign(&mut context);
        for note in &self.notes {
            note.says(&context)?;
        }
        // All validations are evaluated, so that a row covers those after the first failure, too.
        let mut messages = Vec::new();
        for (validation, message) in &self.validations {
            if !validation.is_true(&context)? {
                messages.push(message.says(&context)?);
            }
        }
        Ok(if messages.is_empty() { Verdict::Allowed } else { Verdict::Refused(messages.join("; ")) })
    }

    /// The API server evaluates a variable when it is used. Here a variable that cannot be evaluated is omitted, and
    /// expressions that use it fail.
    fn assign(&self, context: &mut Context<'_>) {
        let mut evaluated = Vec::new();
        for (name, expression) in &self.variables {
            if let Ok(value) = expression.program.execute(context) {
                expression.was_true.store(true, Ordering::Relaxed);
                evaluated.push((name.clone(), value));
                let map = evaluated.iter().map(|(name, value)| (name.clone().into(), value.clone())).collect();
                context.add_variable_from_value("variables", Cel::Map(CelMap { map: Arc::new(map) }));
            }
        }
    }

    /// The results that no row has covered.
    pub(crate) fn untried(&self) -> Vec<String> {
        let lacks = |one: &Expression, is: bool| {
            let seen = if is { &one.was_true } else { &one.was_false }.load(Ordering::Relaxed);
            (!seen).then(|| format!("{} as {is}: {}", one.place, one.text))
        };
        let validations = self.validations.iter().map(|(one, _)| one);
        let both = self.conditions.iter().chain(validations).flat_map(|one| [lacks(one, true), lacks(one, false)]);
        let messages = self.validations.iter().map(|(_, message)| message);
        let once = messages.chain(&self.notes).chain(self.variables.iter().map(|(_, one)| one));
        both.chain(once.map(|one| lacks(one, true))).flatten().collect()
    }
}

fn context(request: &Request) -> Context<'static> {
    let mut context = Context::default().with_all();
    for (name, value) in [
        ("object", &request.object),
        ("oldObject", &request.old),
        ("params", &request.params),
        ("request", &request.request()),
    ] {
        context.add_variable_from_value(name, cel(value));
    }
    authorize(&mut context, &request.rights);
    context
}

/// `authorizer.group(G).resource(R).namespace(N).name(N).check(V).allowed()`: each step appends its argument to a
/// text.
fn authorize(context: &mut Context<'static>, rights: &[&'static str]) {
    context.add_variable_from_value("authorizer", cel(&json!("")));
    context.add_function("group", |This(_): This<Arc<String>>, group: Arc<String>| {
        if *group == "breakglass.pod-safety.dev" { String::new() } else { format!("{group}/") }
    });
    context.add_function("resource", |This(path): This<Arc<String>>, kind: Arc<String>| format!("{path}{kind}"));
    context.add_function("subresource", |This(path): This<Arc<String>>, of: Arc<String>| format!("{path}/{of}"));
    context.add_function("namespace", |This(path): This<Arc<String>>, _of: Arc<String>| path.to_string());
    context.add_function("name", |This(path): This<Arc<String>>, _of: Arc<String>| path.to_string());
    context.add_function("check", |This(path): This<Arc<String>>, verb: Arc<String>| format!("{path} {verb}"));
    let rights = rights.to_vec();
    context.add_function("allowed", move |This(path): This<Arc<String>>| rights.contains(&path.as_str()));
}

/// A merge patch (RFC 7386): rows change an object by it.
pub(crate) fn patched(mut object: Value, patch: Value) -> Value {
    merge(&mut object, patch);
    object
}

fn merge(object: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let into = object.as_object_mut().unwrap();
    for (key, value) in fields {
        if value.is_null() {
            into.remove(&key);
        } else {
            merge(into.entry(key).or_insert(Value::Null), value);
        }
    }
}
