module Recurgent
  # A sandbox without a network refuses as if something were broken; models then try again.
  module Network
    ADVICE = "; the network is off for this agent, so trying again will not help: do without it, or " \
             "report the error type capability_unavailable"
    REFUSALS = [Errno::EPERM, Errno::EACCES, Errno::ENETUNREACH, Errno::EAFNOSUPPORT].freeze
    SOCKET_CALL = /\b(?:socket|connect|bind|sendto)\(2\)/
    CAUSE = Exception.instance_method(:cause)
    MAX_CAUSES = 16

    class << self
      attr_accessor :off

      def missed?(problem)
        MAX_CAUSES.times do
          return false if problem.nil?
          return true if SocketError === problem
          return true if REFUSALS.any? { |kind| kind === problem } && told?(problem)

          problem = CAUSE.bind_call(problem)
        end
        false
      end

      private

      def told?(problem)
        SOCKET_CALL.match?(problem.message)
      rescue Exception # a program's own `message`
        false
      end
    end
  end
end
