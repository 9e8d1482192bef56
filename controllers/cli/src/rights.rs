//! The rights that a command needs, and the ClusterRole of pod-safety that grants them: the hint for a 403.

pub(crate) use pod_safety_print::drains::describe_missing_rights;

/// One line of the table in docs/commands.md.
pub(crate) struct Rights {
    /// The commands.
    pub(crate) commands: &'static [&'static str],
    /// The rights, as the page lists them.
    pub(crate) needs: &'static str,
    /// The ClusterRole of pod-safety that grants them all.
    pub(crate) role: Option<&'static str>,
}

/// The ClusterRole for users who may confirm that a node is off.
pub(crate) const CONFIRM_DOWN: &str = "pod-safety-confirm-down";

/// The ClusterRole for users who may see the custom resources: aggregated into Kubernetes' `view`.
pub(crate) const VIEW: &str = "pod-safety-view";

pub(crate) const TABLE: [Rights; 15] = [
    Rights {
        commands: &["status", "explain", "timeline"],
        needs: "`list` pods, nodes, poddisruptionbudgets, deployments, replicasets, statefulsets, replicationcontrollers, the leases of `kube-node-lease`, events, volumeattachments, evictionrequests and evictions where the API server has them, and the custom resources of pod-safety.dev; `get` the lease `kube-system/pod-safety`, and the `scale` of custom kinds (in the ClusterRole `pod-safety-on-call`)",
        role: None,
    },
    Rights { commands: &["resolve"], needs: "`get` the namespace; `list` everything in it", role: None },
    Rights { commands: &["ui"], needs: "those of `status` and `explain`", role: None },
    Rights {
        commands: &["report"],
        needs: "those of `status`, `explain` and `doctor`; `get` pods/log of pod-safety",
        role: None,
    },
    Rights {
        commands: &["doctor"],
        needs: "those of `status` and `explain`; `list` validatingadmissionpolicies and their bindings, deployments, daemonsets, statefulsets; `get` customresourcedefinitions, Leases in kube-system, settings of Longhorn, the descheduler's ConfigMap; `create` subjectaccessreviews (in the ClusterRole `pod-safety-on-call`)",
        role: None,
    },
    Rights {
        commands: &["explain pdb"],
        needs: "`list` pods, poddisruptionbudgets, deployments, replicasets, statefulsets, replicationcontrollers; `get` the `scale` of custom kinds, if you have any",
        role: None,
    },
    Rights {
        commands: &["drain"],
        needs: "`get` nodes; `get` and `list` pods; `create` pods/eviction, for dry runs too; of evictionrequests, where the API server has them, `list`, `create`, `patch` and `delete`. For the rest of the plan: `list` nodes, `get` daemonsets, and those of `explain pdb` in all namespaces",
        role: None,
    },
    Rights {
        commands: &["confirm-down", "withdraw"],
        needs: "the ClusterRole `pod-safety-confirm-down` of the chart and of `pod-safety manifests`; neither binds it to any user",
        role: Some(CONFIRM_DOWN),
    },
    Rights {
        commands: &["fence"],
        needs: "`get` nodes and their leases; `list` fencepolicies; `create` nodefences",
        role: None,
    },
    Rights { commands: &["cancel"], needs: "`get` nodes and their leases; `patch` nodefences", role: None },
    Rights { commands: &["pause", "resume"], needs: "`get` and `patch` nodes", role: None },
    Rights {
        commands: &["maintain"],
        needs: "as `drain --apply` and `pause`; `patch` nodes/status; `list` nodefences. With `--power-off` as `fence`, and `get` and `patch` nodefences, too",
        role: None,
    },
    Rights { commands: &["pause --policy", "resume --policy"], needs: "`get` and `patch` fencepolicies", role: None },
    Rights { commands: &["devices test"], needs: "`get`, `list` and `patch` fencedevices; no Secrets", role: None },
    Rights {
        commands: &["drill"],
        needs: "as `fence` and `devices test`; `get` and `delete` nodefences. With `--really` as `drain` without `--apply`, too",
        role: None,
    },
];

/// The hint for a 403.
pub(crate) fn missing_rights_hint(command: &str) -> Option<String> {
    let rights = TABLE.iter().find(|rights| rights.commands.contains(&command))?;
    Some(match rights.role {
        Some(role) => format!(
            "{command} takes the ClusterRole {role} (of a release of another name: RELEASE-{role}), which is bound to no user at first: ask an administrator of this cluster to bind it to you"
        ),
        None => format!(
            "{command} takes these rights: {}. Ask an administrator of this cluster for them",
            rights.needs.replace('`', "")
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;
    use serde_json::Value;

    use super::*;
    use crate::Cli;
    use crate::manifests::RBAC;

    const PAGE: &str = include_str!("../../../docs/commands.md");
    const CHART_VIEW: &str = include_str!("../../../charts/pod-safety/templates/view.yaml");

    /// The table of the page: the commands, and the rights that they need.
    fn rows() -> Vec<(String, String)> {
        let rights = PAGE.lines().skip_while(|line| *line != "| | rights |").skip(2);
        let cells = |line: &str| {
            let mut cells = line.trim_matches('|').splitn(2, '|').map(str::trim).map(str::to_owned);
            Some((cells.next()?, cells.next()?))
        };
        rights.take_while(|line| line.starts_with('|')).filter_map(cells).collect()
    }

    #[test]
    fn the_page_has_the_programs_table_of_rights() {
        let rows = rows();
        for Rights { commands, needs: takes, .. } in &TABLE {
            for command in *commands {
                let (verb, flag) = command.split_once(' ').unwrap_or((command, ""));
                let names = |title: &str| {
                    title.split('`').any(|one| one.split_whitespace().next() == Some(verb) && one.contains(flag))
                };
                let is_row = |(title, text): &&(String, String)| names(title) && text.starts_with(takes);
                assert!(rows.iter().any(|row| is_row(&row)), "{command}: {takes}: not a row of docs/commands.md");
            }
        }
    }

    #[test]
    fn each_cluster_command_has_rights_and_each_role_exists() {
        for command in Cli::command().get_subcommands() {
            let connects = |one: &clap::Command| one.get_arguments().any(|arg| arg.get_long() == Some("context"));
            let below = command.get_subcommands().filter(|one| connects(one));
            let names = below.map(|one| format!("{} {}", command.get_name(), one.get_name()));
            let own = Some(command.get_name().to_owned()).filter(|_| connects(command));
            for name in names.chain(own) {
                assert!(missing_rights_hint(&name).is_some(), "{name}");
            }
        }
        let roles: Vec<Value> = RBAC
            .split("\n---\n")
            .filter_map(|text| serde_saphyr::from_str(text).ok())
            .filter(|object: &Value| object["kind"] == "ClusterRole")
            .collect();
        for role in TABLE.iter().filter_map(|rights| rights.role) {
            assert!(roles.iter().any(|one| one["metadata"]["name"] == *role), "{role}");
        }
        assert!(CHART_VIEW.contains("-view\n") && VIEW.ends_with("-view"));
    }

    /// The role grants the rights that the command needs.
    #[test]
    fn the_role_for_confirmations_grants_each_right_they_need() {
        let role =
            RBAC.split("\n---\n").find(|text| text.contains(&format!("  name: {CONFIRM_DOWN}\nrules:"))).unwrap();
        let role: Value = serde_saphyr::from_str(role).unwrap();
        let has: BTreeSet<(String, String)> = role["rules"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| {
                let texts = |field: &str| -> Vec<String> {
                    rule[field].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
                };
                let verbs = texts("verbs");
                texts("resources").into_iter().flat_map(move |what| {
                    verbs.clone().into_iter().map(move |verb| (verb, what.clone())).collect::<Vec<_>>()
                })
            })
            .collect();
        for (verb, resource) in [
            ("get", "nodes"),
            ("get", "leases"),
            ("list", "pods"),
            ("list", "fencepolicies"),
            ("list", "fenceevidences"),
            ("create", "fenceevidences"),
            ("patch", "fenceevidences/status"),
            ("confirm-down", "nodes"),
        ] {
            assert!(has.contains(&(verb.to_owned(), resource.to_owned())), "{verb} {resource}");
        }
    }
}
