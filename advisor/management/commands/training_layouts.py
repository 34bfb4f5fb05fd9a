from advisor.management.laboratory import command

Command = command("training_layouts")
