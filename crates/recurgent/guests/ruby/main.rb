# Restores default signal handling, except SIGPIPE.
%w[HUP QUIT TERM ALRM USR1 USR2].each { |name| trap(name, "SYSTEM_DEFAULT") }
trap("INT", "IGNORE") # the host decides when a zygote ends
if Process.respond_to?(:warmup)
  Process.warmup
else
  GC.start
  # For something this large, malloc first puts together all that was freed; workers would do it page by page.
  String.new(capacity: 100_000).clear
end
$0 = Recurgent::FILE # so that `__FILE__ == $0` holds, as `__name__ == "__main__"` does in Python
# After that, so that the holes in the heap are filled here and not by each worker.
zygote = Recurgent::Zygote.new(Recurgent.warmed_up_worker)
Recurgent::Activation.problem ? zygote.fail_to_boot(Recurgent::Activation.problem) : zygote.serve
Process.exit!(0)
