from advisor.management.laboratory import command

Command = command("support_matrix")
