//! What blocks the deletion of a namespace.

use jiff::Timestamp;
use pod_safety_shared::model::Pod;
use serde_json::Value;

use super::answer::{Answer, Item, Judgement, Next, Verdict, elapsed, format_duration, pluralize};
use super::context::ExplainContext;
use super::pod::explain_pod;

/// How many blocking objects of one kind are listed.
const MAX_SHOWN: usize = 10;

/// An object in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its resource, as `kubectl` takes it: `configmaps`, `kafkas.kafka.strimzi.io`.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its deletion is requested.
    pub deleting: bool,
}

impl Content {
    /// Reads an object of any kind.
    #[must_use]
    pub fn from_object(resource: &str, object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        Some(Self {
            resource: resource.to_owned(),
            name: metadata["name"].as_str()?.to_owned(),
            finalizers: finalizers.filter_map(|one| one.as_str().map(str::to_owned)).collect(),
            deleting: metadata["deletionTimestamp"].is_string(),
        })
    }
}

/// What was found in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// How many kinds were listed.
    pub kinds: usize,
    /// The objects.
    pub objects: Vec<Content>,
    /// The APIServices that do not answer, each with its error.
    pub services: Vec<(String, String)>,
    /// The kinds that could not be listed, each with its error.
    pub unlisted: Vec<(String, String)>,
}

/// Explains a namespace. With `steps`, adds the commands that remove what blocks it, and what each leaves behind.
#[must_use]
pub fn explain_namespace(namespace: &Value, contents: &Contents, steps: bool, ctx: &ExplainContext<'_>) -> Answer {
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    let deletion_requested =
        namespace["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let object = format!("namespace/{name}");
    let Some(deletion_requested) = deletion_requested else {
        let mut answer = Answer::new(object, Judgement::new(Verdict::Free, "Active", "it is not being deleted."));
        answer.facts = vec!["Active".to_owned()];
        return answer;
    };
    let items = list_items(name, contents, ctx);
    let mut answer = Answer::new(object, judge(namespace, &items, contents));
    answer.facts = vec![
        format!("Terminating {}", format_duration(elapsed(deletion_requested, ctx.wall))),
        format!("{} kinds of objects checked", contents.kinds),
    ];
    add_next_steps(&mut answer, name, contents, &items, steps);
    answer.items = items;
    for (resource, why) in contents.unlisted.iter().take(MAX_SHOWN) {
        answer.missing.push(format!("{resource} could not be listed: {why}"));
    }
    answer.notes.push(
        "Do not clear spec.finalizers of the namespace: what is left in it would stay in etcd, out of reach."
            .to_owned(),
    );
    answer
}

fn list_items(name: &str, contents: &Contents, ctx: &ExplainContext<'_>) -> Vec<Item> {
    let mut items = Vec::new();
    for (service, why) in &contents.services {
        let message = format!("it does not answer, so its objects cannot be listed or deleted: {why}");
        items.push(Item {
            object: format!("apiservice/{service}"),
            judgement: Judgement::new(Verdict::Blocked, "ApiServiceUnavailable", message),
        });
    }
    let pods: Vec<&Pod> = ctx.view.all_pods().filter(|pod| *pod.key.namespace == *name).collect();
    for content in &contents.objects {
        let pod = pods.iter().find(|pod| content.resource == "pods" && *pod.key.name == *content.name);
        let verdict = match pod {
            Some(pod) => explain_pod(pod, ctx).judgement,
            None if content.deleting && !content.finalizers.is_empty() => {
                let owners = content.finalizers.join(", ");
                Judgement::new(
                    Verdict::Blocked,
                    "Finalizers",
                    format!("only the owners of its finalizers can let it go: {owners}"),
                )
            }
            None if content.deleting => Judgement::new(Verdict::Waiting, "BeingDeleted", "it is being deleted"),
            None => Judgement::new(Verdict::Waiting, "NotAskedYet", "the namespace controller has not deleted it yet"),
        };
        items.push(Item { object: format!("{}/{name}/{}", content.resource, content.name), judgement: verdict });
    }
    items.sort_by_key(|item| std::cmp::Reverse(item.judgement.verdict));
    items
}

fn judge(namespace: &Value, items: &[Item], contents: &Contents) -> Judgement {
    let blocked = items.iter().filter(|item| item.judgement.verdict == Verdict::Blocked).count();
    let messages: Vec<&str> = namespace["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["status"] == "True")
        .filter_map(|one| one["message"].as_str())
        .collect();
    let messages = if messages.is_empty() {
        String::new()
    } else {
        format!(" The namespace controller says: {}", messages.join(" "))
    };
    match blocked {
        0 if items.is_empty() && contents.unlisted.is_empty() => Judgement::new(
            Verdict::Waiting,
            "Empty",
            format!("nothing is left in it. It is removed as soon as the namespace controller notices that.{messages}"),
        ),
        0 if items.is_empty() => Judgement::new(
            Verdict::Unknown,
            "NotRead",
            format!("nothing was found in it, but not everything could be listed.{messages}"),
        ),
        0 => Judgement::new(
            Verdict::Waiting,
            "BeingEmptied",
            format!("{} left, and nothing blocks their deletion.{messages}", pluralize(items.len(), "object")),
        ),
        count => Judgement::new(
            Verdict::Blocked,
            items[0].judgement.reason,
            format!("{} it, of {} left.{messages}", hold_phrase(count), pluralize(items.len(), "object")),
        ),
    }
}

fn hold_phrase(count: usize) -> String {
    if count == 1 { "1 object blocks".to_owned() } else { format!("{count} objects block") }
}

fn add_next_steps(answer: &mut Answer, name: &str, contents: &Contents, items: &[Item], steps: bool) {
    for (service, _) in &contents.services {
        answer.add_next_step(
            "Restore the service, or delete the APIService if its product is permanently gone",
            format!("kubectl get apiservice {service} -o yaml"),
        );
    }
    for item in items.iter().filter(|item| item.judgement.verdict == Verdict::Blocked) {
        if let Some(pod) = item.object.strip_prefix(&format!("pods/{name}/")) {
            answer.add_next_step(
                format!("Find out why pod {pod} does not terminate"),
                format!("pod-safety explain pod -n {name} {pod}"),
            );
        }
    }
    let held =
        contents.objects.iter().filter(|one| one.resource != "pods" && one.deleting && !one.finalizers.is_empty());
    for Content { resource, name: object, finalizers, .. } in held.take(MAX_SHOWN) {
        let owners = finalizers.join(", ");
        answer.add_next_step(
            format!("Find the controller that owns {owners} on {resource} {object}, and start it"),
            format!("kubectl get {resource} {object} -n {name} -o yaml --show-managed-fields"),
        );
        if steps {
            answer.next.push(Next {
                when: format!("Only if that controller is permanently gone: whatever it should have cleaned up outside the cluster stays behind ({owners})"),
                command: format!("kubectl patch {resource} {object} -n {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"),
                safe: false,
            });
        }
    }
    if !steps && answer.judgement.verdict == Verdict::Blocked {
        answer.add_next_step("Print the steps", format!("pod-safety resolve namespace {name}"));
    }
}
