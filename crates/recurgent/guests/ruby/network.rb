module Recurgent
  # Advice for programs without a network: the kernel's refusal looks like a fault, and models would try again.
  module Network
    ADVICE = "; the network is off for this agent, so trying again will not help: do without it, or " \
             "report the error type capability_unavailable"
    REFUSALS = [Errno::EPERM, Errno::EACCES, Errno::ENETUNREACH, Errno::EAFNOSUPPORT].freeze
    # Ruby names the system call that failed in its own message only.
    SOCKET_CALL = /\b(?:socket|connect|bind|sendto)\(2\)/

    class << self
      attr_accessor :off

      # Whether the exception, or a cause of it, comes from the missing network.
      def missing?(problem)
        ExceptionFacts.causes_of(problem).any? do |it|
          SocketError === it || (REFUSALS.any? { |kind| kind === it } && from_socket?(it))
        end
      end

      private

      def from_socket?(problem)
        SOCKET_CALL.match?(problem.message)
      rescue Exception # a program's own `message`
        false
      end
    end
  end
end
