"""What assumptions of the catalog mean, where their note is empty or starts with something else."""

UNUSED = "Reference figure; answers do not use it"
ASSUMED = {
    "pue": "PUE of on-premises and colocation sites without their own figure",
    "pue-hyperscale": f"PUE of hyperscale data centers. {UNUSED}",
    "pue-modern-ai": f"PUE of new AI data centers. {UNUSED}",
    "pue-industry-average": f"Weighted industry average of PUE. {UNUSED}",
    "electricity-usd-per-kwh": "Electricity price in regions without their own",
    "grid-kgco2e-per-kwh": "Carbon intensity of the grid in regions without their own figure",
    "idle-power-fraction": "Idle power of an accelerator, as a fraction of its power limit",
    "busy-power-fraction": f"Average power in training, as a fraction of the maximum. {UNUSED}",
    "host-watts-per-accelerator": "Power of CPU, memory, fans and network cards in a server with GPU modules (SXM, "
    "OAM), per accelerator",
    "card-host-watts": "Host power per PCIe card, if the catalog has no power figure for the host",
    "socket-host-watts": "Host power per CPU socket that serves without accelerators: memory, drives, network, fans",
    "host-kw-dgx-a100": f"Power of a DGX A100. {UNUSED}",
    "host-kw-dgx-h100": f"Maximum input power of a DGX H100. {UNUSED}",
    "host-kw-dgx-h200": f"Maximum input power of a DGX H200. {UNUSED}",
    "host-kw-dgx-b200": f"Maximum input power of a DGX B200. {UNUSED}",
    "host-kw-dgx-b300": f"Power of a DGX B300. {UNUSED}",
    "host-kw-gb200-nvl72": f"Power of a GB200 NVL72 rack. {UNUSED}",
    "host-kw-gb300-nvl72": f"Power of a GB300 NVL72 rack; peak 155 kW. {UNUSED}",
    "host-kw-mi300x-8x": f"Power of a server with eight MI300X. {UNUSED}",
    "small-host-usd": "Price of a computer for up to four cards, without the cards",
    "small-host-watts": "Power of a computer for up to four cards, without the cards",
    "card-server-usd": "Price of a rack server for passively cooled cards (chassis, processors, memory, drives), "
    "without the cost per card below",
    "card-server-usd-per-card": "Added price per card of such a server: power supplies, PCIe switches, network, "
    "memory, fans",
    "card-server-watts-per-card": "Added power per card of such a server, on top of small-host-watts: fans, power "
    "supplies, switches, network",
    "host-memory-ratio": "Host memory divided by accelerator memory, for instances and servers whose memory no source "
    "states",
    "host-cores-per-accelerator": "CPU cores per accelerator, for instances and servers whose cores no source states",
    "host-network-gbit-per-s": "Network speed of instances and servers for which no source states it",
    "bought-host-disk-gb": "Disk space of a purchased server",
    "cpu-reserved-cores": "Cores per socket for the API server, tokenizer and operating system when a CPU serves the "
    "model",
    "hub-download-gb-per-s": "Speed at which an instance downloads weights from the model hub",
    "network-volume-gb-per-s": "Read speed of the network volume with the weights, for instances whose local disk is "
    "missing or too small",
    "network-volume-usd-per-gb-month": "Price of that network volume; shown with the option, not part of its cost",
    "kv-offload-host-memory-fraction": "Fraction of host memory that offloaded KV cache blocks may fill",
    "accelerator-share-of-server-fraction": "Accelerators' share of a server's price, for the cost breakdown",
    "network-fraction-of-hardware": "Cluster network, as a fraction of the purchase price and added to it",
    "network-fraction-of-cluster-1024": f"Network share of a cluster of 1,024 H100. {UNUSED}",
    "depreciation-years": "Straight-line depreciation period; also the service life after which hardware is replaced",
    "residual-value-fraction": "Resale value at the end of the depreciation period. If you set it, it replaces "
    "residual-value-year-1 to -5",
    "colocation-usd-per-kw-month": "Colocation price. Electricity is extra, at the price per kWh with PUE",
    "maintenance-fraction-per-year": "Maintenance and support, as a fraction of the purchase price",
    "accelerators-per-operator": "Accelerators that one full-time operations engineer runs",
    "operator-usd-per-year": "Yearly cost of one operations engineer",
    "software-usd-per-accelerator-year": "Software licenses per accelerator; the high end is NVIDIA AI Enterprise",
    "accelerator-failure-hours": f"Mean time between failures of an accelerator. {UNUSED}",
    "replacement-fraction-per-year": f"Fraction of accelerators replaced per year. {UNUSED}",
    "spare-fraction": "Spare hardware, as a fraction of the purchase price and added to it",
    "effective-training-time-fraction": f"Productive share of a training run's time. {UNUSED}",
    "training-mfu-fraction": f"Typical MFU in training. {UNUSED}",
    "spot-discount-fraction": "Spot discount where no spot price is known, in the comparison of payment terms",
    "reserved-discount-fraction": "Discount of a 1-year commitment where no price is known, in the comparison of "
    "payment terms",
    "cloud-addon-fraction": "Other cloud services (management, storage), as a fraction of the rental price",
    "egress-usd-per-gb": "Egress price of every provider, if you set it; otherwise each provider's own price below",
    "storage-usd-per-gb-month": "Storage price of every provider, if you set it; otherwise each provider's own price "
    "below",
    "egress-usd-per-gb-aws": "AWS egress price; the free first 100 GB a month and prices beyond 10 TB are not modeled",
    "storage-usd-per-gb-month-aws": "AWS storage price",
    "egress-usd-per-gb-azure": "Azure egress price; the free first 100 GB a month are not modeled",
    "egress-usd-per-gb-gcp": "Google Cloud egress price, 0.085 on the standard tier; free allowances are not modeled",
    "storage-usd-per-gb-month-gcp": "Google Cloud storage price",
    "egress-usd-per-gb-oci": "Oracle Cloud egress price of the first 10 TB a month; the price beyond is not modeled",
    "egress-usd-per-gb-coreweave": "CoreWeave egress price",
    "storage-usd-per-gb-month-coreweave": "CoreWeave storage price; hot object storage is 0.06",
    "egress-usd-per-gb-nebius": "Nebius egress price; 0.015 per GiB from object storage is not used",
    "storage-usd-per-gb-month-nebius": "Nebius storage price",
    "egress-usd-per-gb-lambda": "Lambda egress price",
    "storage-usd-per-gb-month-lambda": "Lambda storage price; the source calls it an example",
    "storage-usd-per-gb-month-crusoe": "Crusoe storage price; the source does not mention egress",
    "memory-bandwidth-fraction": f"Achieved fraction of peak memory bandwidth. {UNUSED}",
    "cluster-utilisation-fraction": f"Typical cluster utilization. {UNUSED}",
    "storage-fraction-of-hardware": "Storage, as a fraction of the purchase price and added to it",
    "prefill-power-fraction": "Power during prefill, as a fraction of the power limit; if you set it, it replaces the "
    "power model",
    "decode-power-fraction": "Power during decode, as a fraction of the power limit; if you set it, it replaces the "
    "power model",
    "waiting-power-fraction": "Power model: waiting for the host at full clocks, as a fraction of (power limit - idle "
    "power)",
    "kernel-power-fraction": "Power model: added while any kernel runs, as a fraction of (power limit - idle power)",
    "memory-power-fraction": "Power model: added at full memory bandwidth, as a fraction of (power limit - idle power)",
    "compute-power-fraction": "Power model: added at full compute rate, as a fraction of (power limit - idle power)",
    "power-low-ratio": "Low end of the 90% interval of a busy chip's power, on the chip that was measured; squared "
    "for others",
    "power-high-ratio": "High end of the 90% interval of a busy chip's power, on the chip that was measured; squared "
    "for others",
    "spot-lost-fraction": "Fraction of paid spot hours lost to interruptions, waiting for an instance and reloading "
    "weights",
    "egress-bytes-per-output-token": "Network traffic per output token, for the egress cost",
    "rent-price-swing-ratio": "Factor by which rental prices may rise or fall within a planning period, for the cost "
    "range",
    "purchase-price-swing-ratio": "Factor by which a purchase price may be off if its source gives no range, for the "
    "cost range",
    "price-age-swing-ratio": "Factor by which a price may be off after one year; its logarithm grows with the square "
    "root of age",
    "capacity-block-days-aws": "AWS Capacity Blocks: longest block",
    "capacity-block-instances-aws": "AWS Capacity Blocks: most instances in one block",
    "capacity-block-weeks-ahead-aws": "AWS Capacity Blocks: latest start, from today",
    "load-swing-ratio": "Factor by which the actual mean load may differ from yours, for the range of the cost per "
    "token",
    "cold-start-s": "Time from requesting an instance until it serves; autoscaling pays for it",
    "host-copy-fraction": "Achieved fraction of PCIe bandwidth when KV cache returns from host memory",
    "host-speed-ratio": "Host time per step relative to the host on which framework overheads were measured; above 1 "
    "is slower",
    "arrival-cv": "Coefficient of variation of the gaps between arrivals at the peak, if the workload states no burstiness "
    "and has no trace; 1: Poisson",
    "arrival-cv-code": "The same for task: code",
    "grammar-mask-us": "Host time per output token for structured output, such as a JSON schema",
    "draft-step-ms": "Extra host time of a verification step compared with a normal decode step",
    "draft-pass-ms": "Host time per drafting pass, for EAGLE, MTP layers and small draft models",
    "acceptance-eagle-chat": "Acceptance rate of one EAGLE draft token on chat (MT-bench)",
    "acceptance-eagle-code": "Acceptance rate of one EAGLE draft token on code (HumanEval)",
    "acceptance-eagle-maths": "Acceptance rate of one EAGLE draft token on math (GSM8K)",
    "acceptance-eagle-translation": "Acceptance rate of one EAGLE draft token on translation",
    "acceptance-eagle-summarisation": "Acceptance rate of one EAGLE draft token on summarization",
    "acceptance-eagle-retrieval": "Acceptance rate of one EAGLE draft token on retrieval-augmented generation",
    "acceptance-draft-chat": "Acceptance rate of one token of a draft model on chat",
    "acceptance-draft-summarisation": "Acceptance rate of one token of a draft model on summarization",
    "acceptance-draft-translation": "Acceptance rate of one token of a draft model on translation",
    "acceptance-mtp-any": "Acceptance rate of one MTP draft token (DeepSeek-V3), for every task",
    "acceptance-ngram-chat": "Acceptance rate of one n-gram draft token on chat",
    "acceptance-ngram-translation": "Acceptance rate of one n-gram draft token on translation",
    "acceptance-ngram-summarisation": "Acceptance rate of one n-gram draft token on summarization",
    "acceptance-ngram-maths": "Acceptance rate of one n-gram draft token on math",
    "acceptance-ngram-retrieval": "Acceptance rate of one n-gram draft token on retrieval-augmented generation",
    "tokens-a-step-medusa-chat": "Tokens per step with Medusa heads on chat",
    "tokens-a-step-medusa-translation": "Tokens per step with Medusa heads on translation",
    "tokens-a-step-medusa-summarisation": "Tokens per step with Medusa heads on summarization",
    "tokens-a-step-medusa-maths": "Tokens per step with Medusa heads on math",
    "tokens-a-step-medusa-retrieval": "Tokens per step with Medusa heads on retrieval-augmented generation",
    "residual-value-year-1": "Market value of a server after one year, as a fraction of the purchase price",
    "residual-value-year-2": "Market value of a server after two years, as a fraction of the purchase price",
    "residual-value-year-3": "Market value of a server after three years, as a fraction of the purchase price",
    "residual-value-year-4": "Market value of a server after four years, as a fraction of the purchase price",
    "residual-value-year-5": "Market value of a server after five years, as a fraction of the purchase price",
    "residual-superseded-ratio": "Market value of a superseded chip divided by that of a current chip of the same age",
    "resale-cost-fraction": "Cost of selling (removal, shipping, broker), as a fraction of the resale value",
    "rent-change-per-year": "Yearly change of rental prices",
    "electricity-change-per-year": "Yearly change of electricity prices",
    "hardware-price-change-per-year": "Yearly change of purchase prices for the same hardware",
    "minimum-engineers-own": "Smallest team for a deployment on owned machines, on-call included, if an existing team "
    "shares the work. If you set only one of these two, it applies to both",
    "minimum-engineers-rented": "Smallest team for a deployment on rented machines, on-call included, if an existing "
    "team shares the work",
    "rented-staff-ratio": "Operations work for a rented accelerator divided by that for an owned one",
    "insurance-fraction-per-year": "Insurance, as a fraction of the purchase price",
    "purchase-lead-months": "Lead time from order to service of servers with GPU modules or passively cooled cards. "
    "If you set it, it applies to every purchase",
    "purchase-lead-months-workstation": "Lead time from order to service of workstation cards with their computer",
    "purchase-lead-months-computer": "Lead time from order to service of a whole computer: a developer kit, a Mac, a "
    "mini PC",
    "migration-overlap-months": "Months in which old and new hardware run, and cost, side by side when a plan switches",
    "commitment-exit-fraction": "Fraction of a commitment's remaining payments that you recover by reselling or "
    "returning it",
    "income-tax-fraction": "Income tax rate; expenses and tax depreciation reduce the tax of a profitable company",
    "vat-fraction": "VAT that you cannot recover; most companies recover it",
    "supply-accelerators-per-region": "Accelerators that one provider can be assumed to have free in a region without "
    "a capacity contract",
    "training-tokens-per-parameter": "Compute-optimal training tokens per parameter (Chinchilla)",
    "training-failures-per-chip-day": "Interruptions per chip and day of a training job that uses all chips",
    "training-failure-replaced-fraction": "Fraction of interruptions after which a host leaves for repair",
    "training-replacement-days": "Days until a host with a failed GPU is back",
    "training-restart-s": "Time from a failure to the next step, including detection but not the lost work",
    "checkpoint-write-bytes-per-s-per-chip": "Checkpoint write speed of shared storage, per chip",
    "checkpoint-read-bytes-per-s-per-chip": "Checkpoint read speed of shared storage, per chip",
    "checkpoint-async-blocked-fraction": "Time that an asynchronous checkpoint blocks training, as a fraction of a "
    "synchronous one",
    "spot-interruptions-per-instance-hour": "Spot interruptions per instance and hour",
    "spot-notice-s": "Notice before a spot interruption",
    "spot-wait-s": "Time from losing a spot instance until another one runs",
    "straggler-spread-fraction": "Standard deviation of the step time between ranks, divided by its mean",
    "training-least-scaling-gain": "Stop adding chips when speed gained divided by extra spending per hour falls "
    "below this; at 0.5, twice the chips must be 1.5 times as fast",
    "training-checkpoints-kept": "Checkpoints kept on shared storage: the last one, the one being written, and one to "
    "go back to",
    "conversion-engineer-days-novice": "One-off engineering to serve a model on a stack other than the one it was "
    "trained on, by a team without skill in that stack",
    "conversion-engineer-days-expert": "The same, by a team of experts in that stack",
}
