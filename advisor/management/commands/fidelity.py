from advisor.management.laboratory import command

Command = command("fidelity")
