//! The rows of the corpus: files, variables and arguments, and their results.

use std::collections::BTreeMap;
use std::fmt;

/// The cluster and the user of a kubeconfig if a row does not set them.
const CLUSTER: &str = "server: https://127.0.0.1:{api}\ncertificate-authority: {pki}/ca.crt";
const USER: &str = "token: t";

#[derive(Default)]
pub(super) struct Row {
    pub(super) name: String,
    /// The lines of the row in the record.
    given: Vec<String>,
    pub(super) files: BTreeMap<String, String>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) arguments: Vec<String>,
    /// Why this program differs from kubectl on purpose.
    pub(super) differs: String,
    pub(super) kubectl: String,
    pub(super) ours: String,
}

impl Row {
    pub(super) fn all(record: &str) -> Vec<Self> {
        record.split("\n\n").map(str::trim_start).filter(|text| !text.trim().is_empty()).map(Self::read).collect()
    }

    fn read(text: &str) -> Self {
        let mut row = Self::default();
        let (mut cluster, mut user, mut file) = (Vec::new(), Vec::new(), String::new());
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "#" => rest.clone_into(&mut row.name),
                "kubectl" => rest.clone_into(&mut row.kubectl),
                "ours" => rest.trim_start().clone_into(&mut row.ours),
                "differs" => rest.clone_into(&mut row.differs),
                "cluster" => cluster.push(rest.to_owned()),
                "user" => user.push(rest.to_owned()),
                "good" => drop(row.files.insert(rest.to_owned(), kubeconfig(CLUSTER, USER))),
                "edit" => row.edit(rest),
                "file" => drop(row.files.insert(rest.to_owned(), String::new())),
                "|" => *row.files.entry(file.clone()).or_default() += &format!("{rest}\n"),
                "variable" => {
                    let (name, value) = rest.split_once('=').unwrap();
                    row.variables.push((name.to_owned(), value.to_owned()));
                }
                "argument" => row.arguments.push(rest.to_owned()),
                other => panic!("{}: {other}", row.name),
            }
            if word == "file" {
                rest.clone_into(&mut file);
            }
            if !matches!(word, "#" | "kubectl" | "ours") {
                row.given.push(line.to_owned());
            }
            if matches!(word, "cluster" | "user") {
                let or = |lines: &[String], usual: &str| {
                    if lines.is_empty() { usual.to_owned() } else { lines.join("\n") }
                };
                row.files.insert("config".to_owned(), kubeconfig(&or(&cluster, CLUSTER), &or(&user, USER)));
            }
        }
        row
    }

    /// Applies `FROM => TO` to the kubeconfig; `^` and `$` are its beginning and end.
    fn edit(&mut self, edit: &str) {
        let (from, to) = edit.split_once(" =>").unwrap();
        let (from, to) = (from.replace("\\n", "\n"), to.trim_start().replace("\\n", "\n"));
        let to = if edit.contains("=>     ") { format!("    {to}") } else { to };
        let text = self.files.get_mut("config").unwrap();
        *text = match &*from {
            "^" => format!("{to}{text}"),
            "$" => format!("{text}{to}"),
            from => text.replacen(from, &to, 1),
        };
    }
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n{}users:\n- name: u\n  user:\n{}contexts:\n- name: prod\n  \
         context:\n    cluster: c\n    user: u\n    namespace: ns\ncurrent-context: prod\n",
        indented(cluster),
        indented(user)
    )
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}", self.name)?;
        for line in &self.given {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "kubectl {}\nours    {}\n", self.kubectl, self.ours)
    }
}
