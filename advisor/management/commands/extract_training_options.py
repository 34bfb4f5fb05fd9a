from advisor.management.laboratory import command

Command = command("extract_training_options")
