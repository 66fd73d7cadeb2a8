# frozen_string_literal: true

require "json"
require "net/http"

module Bench
  module Rows
    # Net::HTTP as programs use it against an API: a session for each task, some headers, a small document
    # that is parsed.
    class HttpSmall < HttpRow
      include Clients

      CLIENTS = 50
      EACH = 100

      title "Net::HTTP, 50 sessions of 100 requests, 1 KiB of JSON each"
      unit "request"

      private

      def body
        @body ||= JSON.generate("items" => (1..25).map { |id| { "id" => id, "name" => "item number #{id}" } })
      end

      def ask(port)
        Net::HTTP.start("127.0.0.1", port, nil, nil) do |http|
          count do
            answer = http.get("/items", "Accept" => "application/json")
            answer.is_a?(Net::HTTPOK) && JSON.parse(answer.body)["items"].size == 25
          end
        end
      end
    end
  end
end
