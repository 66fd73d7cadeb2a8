# frozen_string_literal: true

require "net/http"

module Bench
  module Rows
    # Net::HTTP as a downloader: the bodies are taken in pieces, as what is larger than memory has to be.
    class HttpLarge < HttpRow
      include Clients

      CLIENTS = 20
      EACH = 20
      SIZE = 1_000_000

      title "Net::HTTP, 20 sessions of 20 downloads, 1 MB each"
      unit "download"

      private

      def body
        @body ||= "0123456789" * (SIZE / 10)
      end

      def ask(port)
        Net::HTTP.start("127.0.0.1", port, nil, nil) do |http|
          count do
            bytes = 0
            http.request_get("/file") { |answer| answer.read_body { |piece| bytes += piece.bytesize } }
            bytes == SIZE
          end
        end
      end
    end
  end
end
