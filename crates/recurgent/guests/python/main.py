def main():
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # integers of any size cross
    builtins.exit = builtins.quit = sys.exit  # `-S` leaves them out; programs expect them
    environment, sys.argv = sys.argv[1:], [FILE]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host decides when a zygote ends
    zygote = Zygote()
    try:
        if environment:
            activate(lambda name: zygote.send(op="loading", package=name), *environment)
    except ActivationFailed as problem:
        zygote.send(op="failed", package=problem.package, message=str(problem)[:MAX_EXPLANATION])
        leave(1)
    zygote.worker = warmed_up_worker()
    gc.freeze()  # not collected: holes in the heap would be filled by each worker anew
    zygote.serve()
    for pid in tuple(zygote.workers):
        zygote.reap(pid)
    leave(0)


harness_module = sys.modules["__main__"]  # outlives the programs that take its place
main()
