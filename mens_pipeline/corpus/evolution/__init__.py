"""Requests made harder or moved to other subjects by a model, and completed by it (Evol-Instruct).

Source: Xu et al., "WizardLM: Empowering Large Language Models to Follow Complex Instructions" (2023).
"""
