from advisor.management.laboratory import command

Command = command("bench_quick")
