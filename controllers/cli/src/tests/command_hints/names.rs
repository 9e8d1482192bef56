//! Names on the command line, and the hints where they are wrong: names, namespaces, rights, and what is not installed.

use std::sync::Arc;

use clap::{CommandFactory as _, Parser as _};
use pod_safety_shared::testing::AnswerFn;
use serde_json::json;

use super::{MORE, well, with, without_crds};
use crate::untrusted_text::{COMMANDS, Objects, run_command, server};
use crate::{Cli, cluster};

/// A mistyped node name led to a sentence about deleted Nodes, and a namespace that does not exist to no hint.
#[test]
fn bug_an_unknown_name_got_no_suggestion() {
    let respond = well();
    let suggestion = "did you mean worker-b1?";
    for (line, expected) in [
        ("explain node workerb1", "there is no node workerb1, and no pod names it: did you mean worker-b1?"),
        ("explain workerb1", "there is no node workerb1, and no pod workerb1 either: did you mean worker-b1?"),
        ("timeline workerb1", suggestion),
        ("drain workerb1", "there is no node workerb1: did you mean worker-b1?"),
        ("confirm-down workerb1 --reason r --confirm 'workerb1 is off'", suggestion),
        ("fence workerb1 --reason r", suggestion),
        ("withdraw workerb1 --reason r", suggestion),
        ("cancel workerb1", suggestion),
        ("drill workerb1", suggestion),
        ("maintain workerb1 --reason r", suggestion),
        ("pause workerb1 --reason r", suggestion),
        ("pause --policy rackb --reason r", "there is no FencePolicy rackb: did you mean rack-b?"),
        ("devices test impi-b1", "there is no FenceDevice impi-b1: did you mean ipmi-b1?"),
        ("explain pod ordres-1 -n shop", "there is no pod ordres-1 in namespace shop: did you mean orders-1?"),
        (
            "explain pod orders-1 -n shpo",
            "there is no pod orders-1 in namespace shpo, because there is no namespace shpo; did you mean shop? Namespace shop has a pod orders-1",
        ),
        ("explain pod orders-1 -n old", "did you mean the one in namespace shop?"),
        (
            "explain orders-1 -n nope",
            "there is no pod orders-1 in namespace nope (and no node orders-1), because there is no namespace nope; namespace shop has a pod orders-1",
        ),
        (
            "explain StatefulSet/ordres -n shop",
            "there is no StatefulSet ordres in namespace shop: did you mean orders?",
        ),
        ("explain sts ordres -n shop", "there is no StatefulSet ordres in namespace shop: did you mean orders?"),
        ("explain pdb order -n shop", "there is no PodDisruptionBudget order in namespace shop: did you mean orders?"),
        ("explain ns shpo", "there is no namespace shpo: did you mean shop?"),
        ("explain pdb -n shpo", "there is no namespace shpo: did you mean shop?"),
        ("status -n shpo", "there is no namespace shpo: did you mean shop?"),
        ("explain pvc daat-0 -n shop", "did you mean data-0?"),
        (
            "explain node frontend",
            "there is no node frontend, and no pod names it. kubectl get nodes shows which there are",
        ),
    ] {
        let (code, text) = run_command(line, &respond);
        assert!(code == 1 && text.contains(expected), "{line}: {code}: {text}");
        assert!(!text.contains("after the quarantine"), "{line}: {text}");
    }
    // Its Node was deleted, and its pods still exist: no other node is suggested.
    let gone = with(|all| {
        let pod = &mut all.get_mut("/api/v1/pods").unwrap()[0];
        pod["spec"]["nodeName"] = json!("workerb1");
    });
    let (_, text) = run_command("pause workerb1 --reason r", &gone);
    assert!(text.contains("after the quarantine") && !text.contains("did you mean"), "{text}");
}

/// kubectl takes `-n` before and after the command. `status` did not, and so neither did `pod-safety -n shop status`.
#[test]
fn bug_the_namespace_flag_was_refused_although_help_has_it() {
    let mut tried = 0;
    for command in Cli::command().get_subcommands() {
        let below: Vec<&clap::Command> = command.get_subcommands().collect();
        let name = command.get_name();
        let leaves = if below.is_empty() {
            vec![(name.to_owned(), command)]
        } else {
            below.into_iter().map(|one| (format!("{name} {}", one.get_name()), one)).collect()
        };
        for (name, command) in leaves {
            let connects = command.get_arguments().any(|arg| arg.get_long() == Some("context"));
            let takes = command.get_arguments().any(|arg| arg.get_short() == Some('n'));
            assert_eq!(connects, takes, "{name}: a command with a cluster takes its namespace");
            tried += usize::from(connects);
        }
    }
    assert!(tried > 12, "{tried}");
    for line in COMMANDS.into_iter().chain(MORE).filter(|line| !line.contains(" -n ") && !line.contains('\'')) {
        for line in [format!("pod-safety -n shop {line}"), format!("pod-safety {line} -n shop")] {
            let words = cluster::move_global_flags(line.split(' ').map(Into::into));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
    let (code, text) = run_command("status -n old", &well());
    assert!(text.contains("namespace old") && !text.contains("BLOCKED PODS"), "{code}: {text}");
    assert!(run_command("status -n shop", &well()).1.contains("shop       orders-1"));
}

#[test]
fn bug_a_node_or_a_pod_was_not_found_by_its_name_alone() {
    for (line, code, expected) in [
        ("explain worker-b1", 3, "node/worker-b1"),
        ("explain orders-1", 3, "pod/shop/orders-1"),
        ("timeline worker-b1", 0, "worker-b1 counts as lost"),
        ("timeline pod/orders-1", 0, "deletion requested"),
        ("timeline node/worker-b1 --since 1h", 0, "worker-b1 counts as lost"),
        ("timeline --since 3h", 0, "node/worker-b1"),
        ("timeline worker-b1 --since 1s", 0, "Nothing is known about it"),
        ("explain pdo orders-1", 2, "there is no kind pdo: allowed is pod (po), node (no)"),
    ] {
        let (ended, text) = run_command(line, &well());
        assert!(ended == code && text.contains(expected), "{line}: {ended}: {text}");
    }
}

/// It took the rights to get nodes and StatefulSets, which its row of the table does not name, and a pod was taken for a node.
#[test]
fn bug_the_rights_that_explain_names_did_not_suffice() {
    for (refused, line, expected) in [
        ("/apis/apps/v1/namespaces/shop/statefulsets/", "explain sts orders -n shop", "statefulset/shop/orders"),
        ("/api/v1/nodes/", "explain orders-1", "pod/shop/orders-1"),
        ("/api/v1/nodes/", "explain worker-b1", "node/worker-b1"),
        ("/api/v1/nodes", "explain orders-1", "pod/shop/orders-1"),
        ("/api/v1/nodes", "explain workerb1", "It may still exist"),
    ] {
        let allowed = well();
        let limited: Arc<AnswerFn> = Arc::new(move |method, path, body| match path.starts_with(refused) {
            true => (403, json!({ "kind": "Status", "reason": "Forbidden", "code": 403, "message": "no" })),
            false => allowed(method, path, body),
        });
        let (_, text) = run_command(line, &limited);
        assert!(text.contains(expected) && !text.contains("sk an administrator"), "{refused}: {line}: {text}");
    }
}

/// Without a right the hint names the role, and without the CRDs what to install: before any wait.
#[test]
fn bug_an_error_named_neither_the_role_nor_the_crds() {
    let refuses = server(Objects::new(), "no".to_owned(), true);
    for (line, expected) in [
        (
            "confirm-down worker-b1 --reason r --confirm 'worker-b1 is off'",
            "takes the ClusterRole pod-safety-confirm-down (of a release of another name: RELEASE-pod-safety-confirm-down)",
        ),
        ("withdraw worker-b1 --reason r", "takes the ClusterRole pod-safety-confirm-down"),
        ("fence worker-b1 --reason r", "get nodes and their leases; list fencepolicies; create nodefences"),
        ("cancel worker-b1", "patch nodefences"),
        ("pause worker-b1 --reason r", "get and patch nodes"),
        ("pause --policy p --reason r", "get and patch fencepolicies"),
        ("devices test", "get, list and patch fencedevices; no Secrets"),
        ("drain worker-a1", "create pods/eviction"),
        ("explain pdb", "list pods, poddisruptionbudgets"),
        ("resolve ns old", "list everything in it"),
    ] {
        let (code, text) = run_command(line, &refuses);
        assert!(code == 1 && text.contains(expected) && text.contains("sk an administrator"), "{line}: {code}: {text}");
    }
    let elsewhere: Arc<AnswerFn> = Arc::new(|_, _, _| (404, json!({ "message": "404 page not found" })));
    for line in ["explain pdb", "status", "devices test"] {
        let (code, text) = run_command(line, &elsewhere);
        let expected = "no API server is at this address: check the path of server in the kubeconfig";
        assert!(code == 1 && text.contains(expected) && !text.contains("CRDs"), "{line}: {code}: {text}");
    }
    let proxy: Arc<AnswerFn> = Arc::new(|_, _, _| (403, json!("<html>")));
    for line in ["explain pdb", "status", "devices test", "pause worker-b1 --reason r", "drain worker-a1"] {
        let (code, text) = run_command(line, &proxy);
        assert!(code == 1 && text.contains("is no API server, but a proxy"), "{line}: {code}: {text}");
        assert!(!text.contains("sk an administrator") && !text.contains("You may not"), "{line}: {text}");
    }
    let without = without_crds();
    for line in [
        "confirm-down worker-b1 --reason r --confirm 'worker-b1 is off'",
        "withdraw worker-b1 --reason r",
        "fence worker-b1 --reason r",
        "fence worker-b1 --dry-run",
        "cancel worker-b1",
        "drill worker-b1",
        "devices test",
        "pause --policy p --reason r",
    ] {
        let (code, text) = run_command(line, &without);
        let expected = "are the CRDs of pod-safety installed? pod-safety manifests prints them";
        assert!(code == 1 && text.contains(expected) && !text.contains("watching"), "{line}: {code}: {text}");
    }
}

/// `confirm-down` watched for heartbeats for 15 s before it refused what it could have refused at once.
#[test]
fn bug_an_invalid_confirmation_was_refused_only_after_waiting() {
    let unused: Arc<AnswerFn> = Arc::new(|method, path, _| panic!("{method} {path}: no request was expected"));
    let (code, text) = run_command("confirm-down worker-b1 --reason r --confirm yes", &unused);
    assert!(code == 4 && text.contains("it is \"worker-b1 is off\"; nothing was changed"), "{code}: {text}");
    let allowed = well();
    let denied: Arc<AnswerFn> = Arc::new(move |method, path, body| match path.ends_with("/selfsubjectaccessreviews") {
        true => (201, json!({ "status": { "allowed": false } })),
        false => allowed(method, path, body),
    });
    let line = "confirm-down worker-b1 --reason r --confirm 'worker-b1 is off'";
    let (code, text) = run_command(line, &denied);
    assert!(
        code == 1
            && text.contains("you may not create fenceevidences.pod-safety.dev")
            && text.contains("takes the ClusterRole pod-safety-confirm-down")
            && !text.contains("watching"),
        "{code}: {text}"
    );
    let (code, text) = run_command(&line.replace("worker-b1", "worker-a1"), &well());
    assert!(code == 4 && text.contains("is still marked Ready") && !text.contains("watching"), "{code}: {text}");
}
