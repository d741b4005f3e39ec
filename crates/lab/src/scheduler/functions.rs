//! Which functions of the kernel are its scheduler.
//!
//! Names are those of Linux 5.10 to 6.18. A sample has the chain of functions that had called each other, the innermost
//! first: the first one that says anything decides ([`part_of`]). So what the scheduler calls is the scheduler's (the spin lock
//! of a run queue, the interrupt to another CPU, the change of address space), and what an interrupt does on top of it is not.

use serde::{Deserialize, Serialize};

/// A part of the kernel that samples are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelPart {
    /// Choosing threads, changing between them, waking them, keeping run queues and their locks.
    Scheduler,
    /// Queues of threads that wait for a word of memory (futex), without the scheduler that they call.
    FutexQueue,
    /// Anything else, user code included.
    Other,
}

/// What a function says of the samples in it and in what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionRole {
    /// They belong to this part.
    Is(KernelPart),
    /// An interrupt begins here: what it has interrupted says nothing.
    Interrupt,
    /// Nothing: its caller decides.
    Nothing,
}

/// Functions of the scheduler, by their whole name.
const SCHEDULER: &[&str] = &[
    // Changes of threads. `schedule_work`, `schedule_timeout` and their like queue work or set timers, and are not here.
    "schedule",
    "__schedule",
    "schedule_idle",
    "schedule_tail",
    "schedule_preempt_disabled",
    "schedule_rtlock",
    "do_task_dead",
    "do_sched_yield",
    "context_switch",
    "prepare_task_switch",
    "finish_task_switch",
    "__switch_to",
    "__switch_to_asm",
    "__switch_to_xtra",
    "switch_mm",
    "switch_mm_irqs_off",
    "cpu_switch_to",
    "perf_event_task_sched_in",
    "perf_event_task_sched_out",
    // Wake-ups.
    "try_to_wake_up",
    "wake_up_process",
    "wake_up_state",
    "wake_up_q",
    "wake_up_new_task",
    "default_wake_function",
    "sched_ttwu_pending",
    "scheduler_ipi",
    // Run queues, accounts and the choice of the next thread.
    "activate_task",
    "deactivate_task",
    "block_task",
    "enqueue_entity",
    "dequeue_entity",
    "dequeue_entities",
    "pick_eevdf",
    "place_entity",
    "update_load_avg",
    "update_min_vruntime",
    "cpuacct_charge",
    "psi_task_switch",
    "psi_task_change",
    "psi_group_change",
    "task_rq_lock",
    "__task_rq_lock",
    // The tick and balancing.
    "scheduler_tick",
    "sched_tick",
    "load_balance",
    "newidle_balance",
    "rebalance_domains",
    "run_rebalance_domains",
];

/// The same, by how their names begin.
const SCHEDULER_BEGINS: &[&str] = &[
    "preempt_schedule",
    "ttwu_",
    "__ttwu_",
    "select_task_rq",
    "resched_curr",
    "wakeup_preempt",
    "check_preempt",
    "enqueue_task",
    "dequeue_task",
    "pick_next_",
    "__pick_next_",
    "pick_task",
    "put_prev_",
    "set_next_",
    "update_curr",
    "update_rq_clock",
    "yield_t",
    "task_tick_",
    "sched_balance_",
    "raw_spin_rq_",
    "_raw_spin_rq_",
];

/// Queues of waiting threads.
const FUTEX_BEGINS: &[&str] =
    &["futex_", "__futex_", "do_futex", "get_futex_", "__x64_sys_futex", "__arm64_sys_futex", "__se_sys_futex"];

/// The ways into the kernel by an interrupt, and interrupts that were put off.
const INTERRUPT_BEGINS: &[&str] = &[
    "asm_sysvec_",
    "asm_common_interrupt",
    "asm_exc_nmi",
    "el1h_64_irq",
    "el0t_64_irq",
    "handle_softirqs",
    "__do_softirq",
    "__softirqentry_text_start",
];

impl FunctionRole {
    /// Of the function with this name in `/proc/kallsyms`. What the compiler has appended (`.isra.0`, `.cold`) makes no
    /// difference.
    pub fn of(symbol: &str) -> FunctionRole {
        let name = symbol.split('.').next().unwrap_or(symbol);
        let begins = |with: &[&str]| with.iter().any(|start| name.starts_with(start));
        if SCHEDULER.contains(&name) || begins(SCHEDULER_BEGINS) {
            FunctionRole::Is(KernelPart::Scheduler)
        } else if begins(FUTEX_BEGINS) {
            FunctionRole::Is(KernelPart::FutexQueue)
        } else if begins(INTERRUPT_BEGINS) {
            FunctionRole::Interrupt
        } else {
            FunctionRole::Nothing
        }
    }
}

/// The part that a chain of functions is in, the innermost first.
pub fn part_of(chain: impl IntoIterator<Item = FunctionRole>) -> KernelPart {
    let says = |role| match role {
        FunctionRole::Is(part) => Some(part),
        FunctionRole::Interrupt => Some(KernelPart::Other),
        FunctionRole::Nothing => None,
    };
    chain.into_iter().find_map(says).unwrap_or(KernelPart::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(chain: &str) -> KernelPart {
        part_of(chain.split(" < ").map(FunctionRole::of))
    }

    /// Chains that Linux 6.18 gave.
    #[test]
    fn what_the_scheduler_calls_is_the_schedulers() {
        for chain in [
            "finish_task_switch.isra.0 < __schedule < schedule < futex_do_wait < __futex_wait < do_futex < do_syscall_64",
            "_raw_spin_unlock_irqrestore < try_to_wake_up < wake_up_q < futex_wake < do_futex < do_syscall_64",
            "native_queued_spin_lock_slowpath < _raw_spin_lock < raw_spin_rq_lock_nested < __schedule < schedule",
            "pick_task_fair < __pick_next_task < __schedule < schedule < do_sched_yield < __x64_sys_sched_yield",
            "update_curr < dequeue_entities < dequeue_task_fair",
            "finish_task_switch.isra.0 < __schedule < preempt_schedule_irq < irqentry_exit < asm_sysvec_reschedule_ipi < memcpy",
        ] {
            assert_eq!(part(chain), KernelPart::Scheduler, "{chain}");
        }
    }

    #[test]
    fn the_queues_of_futexes_are_apart_and_the_rest_is_other() {
        for chain in [
            "_raw_spin_lock < futex_q_lock < futex_wait_setup < __futex_wait < futex_wait < do_futex < do_syscall_64",
            "plist_add < __futex_queue < futex_wait_setup",
        ] {
            assert_eq!(part(chain), KernelPart::FutexQueue, "{chain}");
        }
        for chain in [
            "",
            "memcpy < tcp_sendmsg_locked < do_syscall_64 < entry_SYSCALL_64_after_hwframe",
            "do_syscall_64 < entry_SYSCALL_64_after_hwframe",
            "pv_native_safe_halt < default_idle < do_idle < cpu_startup_entry",
            "schedule_timeout_work",
            "queue_work_on < schedule_work",
        ] {
            assert_eq!(part(chain), KernelPart::Other, "{chain}");
        }
    }

    /// An interrupt that comes while a thread is in the scheduler is not the scheduler's, and a wake-up by it is.
    #[test]
    fn an_interrupt_is_not_the_work_of_what_it_interrupted() {
        let interrupted = "asm_sysvec_apic_timer_interrupt < finish_task_switch.isra.0 < __schedule";
        assert_eq!(
            part(&format!("net_rx_action < handle_softirqs < __irq_exit_rcu < {interrupted}")),
            KernelPart::Other
        );
        assert_eq!(part(&format!("try_to_wake_up < hrtimer_wakeup < {interrupted}")), KernelPart::Scheduler);
    }
}
