# The webhook receiver to develop against (test/rig/receiver): verifies signatures, drops duplicates, prints what it gets.
FROM python:3.13-slim-trixie
COPY test/rig/requirements.txt /tmp/requirements.txt
RUN grep -E '^(fastapi|psycopg|pydantic|standardwebhooks|starlette|uvicorn)' /tmp/requirements.txt > /tmp/receiver.txt && \
    pip install --no-cache-dir -r /tmp/receiver.txt && rm /tmp/receiver.txt /tmp/requirements.txt
COPY test/rig/receiver /receiver
USER nobody
ENTRYPOINT ["python", "-u", "-m", "receiver"]
