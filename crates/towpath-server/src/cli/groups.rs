//! The commands of `towpath --help`, in groups.

/// Every command, under the heading that people look for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Calls", &["call", "calls", "worker", "workers", "functions", "dlq"]),
    ("Workflows", &["run"]),
    ("Batches, locks and limits", &["batch", "lock", "limit"]),
    ("Servers", &["dev", "serve", "config", "export", "import", "doctor", "bench"]),
    ("Other", &["completions", "openapi", "version", "help"]),
];

/// Shows the commands in groups.
pub(crate) fn in_groups(mut command: clap::Command) -> clap::Command {
    command.build(); // so that `help` is there
    let about = |name: &str| {
        let found = command.get_subcommands().find(|command| command.get_name() == name);
        found.and_then(clap::Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let lines = |names: &[&str]| names.iter().map(|name| format!("  {name:12} {}\n", about(name))).collect::<String>();
    let groups = GROUPS.map(|(heading, names)| format!("{heading}:\n{}", lines(names))).join("\n");
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\n{{options}}{{after-help}}\n");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_with_a_line_that_fits() {
        let mut command = crate::cli::Cli::command();
        command.build();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(known, grouped);
        let help = in_groups(crate::cli::Cli::command()).render_help().to_string();
        let groups = help.split("Options:").next().unwrap_or_default();
        assert!(groups.contains("\nServers:\n  dev          Run"), "{help}");
        for line in groups.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
